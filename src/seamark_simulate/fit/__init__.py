"""Models of servers with parameters from measured trials: fit, contradiction, prediction and score. Reads no file."""

from seamark_simulate.fit.contradiction import contradictions, replica_contradictions
from seamark_simulate.fit.prediction import Prediction, predict_replica, predict_station
from seamark_simulate.fit.replica_fit import FittedReplica, ReplicaLimits, fit_replica
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.fit.score import HeldOut, Scored, held_out, score, scored
from seamark_simulate.fit.station_fit import FittedStation, fit_station
from seamark_simulate.fit.station_trial import StationTrial

__all__ = [
    "FittedReplica",
    "FittedStation",
    "HeldOut",
    "Prediction",
    "ReplicaLimits",
    "ReplicaTrial",
    "Scored",
    "StationTrial",
    "contradictions",
    "fit_replica",
    "fit_station",
    "held_out",
    "predict_replica",
    "predict_station",
    "replica_contradictions",
    "score",
    "scored",
]
