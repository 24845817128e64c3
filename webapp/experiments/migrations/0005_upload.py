import django.db.models.deletion
from django.db import migrations, models

# What runs referred to before uploads were noted, they had uploaded.
PARTS = """
    INSERT INTO experiments_upload (run_id, sha256, size, created_at)
    SELECT DISTINCT ON (checkpoint.run_id, part) checkpoint.run_id, part, 0, checkpoint.created_at
    FROM experiments_checkpoint AS checkpoint,
        jsonb_each(checkpoint.files) AS file (name, manifest),
        jsonb_array_elements_text(manifest -> 'parts') AS part
    WHERE jsonb_typeof(manifest -> 'parts') = 'array'
    ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [("experiments", "0004_run_is_external")]

    operations = [
        migrations.CreateModel(
            name="Upload",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("sha256", models.CharField(max_length=64)),
                ("size", models.PositiveBigIntegerField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uploads",
                        to="experiments.run",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["sha256"], name="upload_by_blob")],
                "constraints": [
                    models.UniqueConstraint(fields=("run", "sha256"), name="upload_once")
                ],
            },
        ),
        migrations.RunSQL(PARTS, migrations.RunSQL.noop),
    ]
