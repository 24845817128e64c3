from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0006_attempt_code_version")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="has_stale_series",
            field=models.BooleanField(default=False),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("has_stale_series", True)), fields=["id"], name="run_stale"
            ),
        ),
    ]
