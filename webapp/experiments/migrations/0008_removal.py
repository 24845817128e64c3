from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0007_run_has_stale_series")]

    operations = [
        migrations.CreateModel(
            name="Removal",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(choices=[("run", "run"), ("blob", "blob")], max_length=4),
                ),
                ("name", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
        ),
    ]
