Local node ID 2, transport knet
LINK ID 0 udp
	addr	= 10.77.2.12
	status:
		nodeid:          1:	connected
		nodeid:          2:	localhost
LINK ID 1 udp
	addr	= 10.77.1.12
	status:
		nodeid:          1:	connected
		nodeid:          2:	localhost
