"""Models of servers with parameters from measured trials: fit, contradiction, prediction and score. Reads no file."""

from seamark.fit.contradiction import contradictions
from seamark.fit.prediction import Prediction, predict
from seamark.fit.score import Scored, score
from seamark.fit.station_fit import FittedStation, fit_station
from seamark.fit.station_trial import StationTrial

__all__ = [
    "FittedStation",
    "Prediction",
    "Scored",
    "StationTrial",
    "contradictions",
    "fit_station",
    "predict",
    "score",
]
