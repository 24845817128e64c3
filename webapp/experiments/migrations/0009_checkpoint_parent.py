from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("experiments", "0008_removal")]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="parent_path",
            field=models.CharField(default="", max_length=500),
        ),
    ]
