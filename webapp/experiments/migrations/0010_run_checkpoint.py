import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("experiments", "0009_checkpoint_parent"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="checkpoint",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="forks",
                to="experiments.checkpoint",
            ),
        ),
    ]
