"""Reward schemes as data, the terms they are made of, grading and backtests. Imports no torch."""

from engine.rewards.backtest import Backtest, backtest
from engine.rewards.scheme import RewardCurriculum, RewardScheme, RewardTerm
from engine.rewards.score import give_reward, score

__all__ = [
    "Backtest",
    "RewardCurriculum",
    "RewardScheme",
    "RewardTerm",
    "backtest",
    "give_reward",
    "score",
]
