Local node ID 1, transport knet
LINK ID 0 udp
	addr	= 10.77.2.11
	status:
		nodeid:          1:	localhost
		nodeid:          2:	connected
LINK ID 1 udp
	addr	= 10.77.1.11
	status:
		nodeid:          1:	localhost
		nodeid:          2:	connected
