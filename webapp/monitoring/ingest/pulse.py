"""Ingest's background work: say that it is up, and bring roll-ups up to date."""

import asyncio
import logging

from channels.db import database_sync_to_async

from webapp.experiments.services import PULSE_S, pulse
from webapp.monitoring.rollups import roll_up_some

logger = logging.getLogger(__name__)


async def pulse_for_ever() -> None:
    """Every PULSE_S; the outages of ingest count against no run, see `silent_attempts`."""
    while True:
        try:
            await database_sync_to_async(pulse)()
            while await database_sync_to_async(roll_up_some)():
                await database_sync_to_async(pulse)()
        except Exception:  # a database that is away comes back; the break is what counts
            logger.warning("ingest could not say that it is up", exc_info=True)
        await asyncio.sleep(PULSE_S)
