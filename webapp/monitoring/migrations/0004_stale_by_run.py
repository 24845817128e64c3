from django.db import migrations

STALE = """
    UPDATE experiments_run SET has_stale_series = true
    WHERE id IN (SELECT run_id FROM monitoring_series WHERE cursor > rolled)
"""
# Room in each page for the row that a batch writes in place of the one before.
ROOM = "ALTER TABLE monitoring_series SET (fillfactor = 60)"


class Migration(migrations.Migration):
    dependencies = [
        ("experiments", "0007_run_has_stale_series"),
        ("monitoring", "0003_points_unchecked"),
    ]

    operations = [
        migrations.RunSQL(STALE, migrations.RunSQL.noop),
        migrations.RemoveIndex(model_name="series", name="series_stale"),
        migrations.RunSQL(ROOM, "ALTER TABLE monitoring_series RESET (fillfactor)"),
    ]
