"""NIC transports: pure state machines over numpy columns, driven by packets and the time.

They open no sockets: a worker feeds them what its rings received and sends what they emit, and a
test can drive them through a simulated network in simulated time.
"""
