from django.db import migrations

# What trajectories referred to before uploads were noted, their runs had uploaded.
SHARDS = """
    INSERT INTO experiments_upload (run_id, sha256, size, created_at)
    SELECT run_id, shard, max("offset" + length), min(started_at)
    FROM reviews_trajectory GROUP BY run_id, shard
    ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [("experiments", "0005_upload"), ("reviews", "0002_review_queues")]

    operations = [migrations.RunSQL(SHARDS, migrations.RunSQL.noop)]
