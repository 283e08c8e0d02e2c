"""Names that the demo and its driver processes share; the topology itself can only be imported if its folder is set."""

FOLDER_VARIABLE = "TXTOPO_DEMO_FOLDER"
APPLICATION = "txtopo.demo.topology:topology"
TOPOLOGY = "flights"
TABLE = "flights_by_carrier"
