from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0005_upload")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="code_version",
            field=models.CharField(blank=True, max_length=64),
        ),
    ]
