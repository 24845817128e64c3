"""A trial has runs, one for each seed, and what it brought to rungs lies in a table."""

import django.db.models.deletion
from django.db import migrations, models


def copy(apps, schema_editor):
    Trial = apps.get_model("sweeps", "Trial")
    TrialRun = apps.get_model("sweeps", "TrialRun")
    Arrival = apps.get_model("sweeps", "Arrival")
    for trial in Trial.objects.select_related("old_run").order_by("pk").iterator(chunk_size=500):
        if trial.state != "refused":
            seed = trial.old_run.spec.get("seed", 0) if trial.old_run else 0
            TrialRun.objects.create(
                trial=trial, run=trial.old_run, seed=seed, value=trial.value
            )
        for rung, one in enumerate(trial.old_rungs):
            Arrival.objects.create(
                sweep_id=trial.sweep_id, trial=trial, rung=rung, step=one["step"],
                value=float(one["value"]), rank=one["rank"], of=one["of"], stays=one["stays"],
            )


class Migration(migrations.Migration):

    dependencies = [
        ('experiments', '0017_run_full_spec'),
        ('sweeps', '0001_initial'),
    ]

    operations = [
        migrations.RenameField('trial', 'run', 'old_run'),
        migrations.RenameField('trial', 'rungs', 'old_rungs'),
        migrations.CreateModel(
            name='Arrival',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('rung', models.PositiveSmallIntegerField()),
                ('step', models.PositiveBigIntegerField()),
                ('value', models.FloatField()),
                ('rank', models.PositiveIntegerField()),
                ('of', models.PositiveIntegerField()),
                ('stays', models.BooleanField()),
                ('promoted_at', models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='TrialRun',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('seed', models.BigIntegerField()),
                ('value', models.FloatField(null=True)),
            ],
        ),
        migrations.AddIndex(
            model_name='trial',
            index=models.Index(fields=['sweep', 'state'], name='trial_by_state'),
        ),
        migrations.AddField(
            model_name='arrival',
            name='sweep',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='arrivals', to='sweeps.sweep'),
        ),
        migrations.AddField(
            model_name='arrival',
            name='trial',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='rungs', to='sweeps.trial'),
        ),
        migrations.AddField(
            model_name='trialrun',
            name='run',
            field=models.OneToOneField(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='trial_run', to='experiments.run'),
        ),
        migrations.AddField(
            model_name='trialrun',
            name='trial',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='runs', to='sweeps.trial'),
        ),
        migrations.AddIndex(
            model_name='arrival',
            index=models.Index(fields=['sweep', 'rung', 'value'], name='arrival_ranked'),
        ),
        migrations.AddConstraint(
            model_name='arrival',
            constraint=models.UniqueConstraint(fields=('trial', 'rung'), name='arrival_once'),
        ),
        migrations.AddConstraint(
            model_name='trialrun',
            constraint=models.UniqueConstraint(fields=('trial', 'seed'), name='trial_seed_once'),
        ),
        migrations.RunPython(copy, migrations.RunPython.noop),
        migrations.RemoveField('trial', 'old_run'),
        migrations.RemoveField('trial', 'old_rungs'),
    ]
