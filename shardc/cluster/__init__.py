"""The target machine of a plan: devices, and the links between them."""

from shardc.cluster.cluster import Cluster as Cluster
from shardc.cluster.devices import Device as Device
from shardc.cluster.devices import Software as Software
from shardc.cluster.devices import Timing as Timing
from shardc.cluster.islands import Bridge as Bridge
from shardc.cluster.islands import Island as Island
from shardc.cluster.levels import Level as Level
from shardc.cluster.levels import Protocol as Protocol
