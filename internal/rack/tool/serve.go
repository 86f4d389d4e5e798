package tool

import (
	"fmt"
	"net"
	"os"
)

// ServeConns runs serve for each connection, in a goroutine of its own, until the listener
// fails. It then closes the connection, and prints an error of serve on stderr.
func ServeConns(l net.Listener, serve func(net.Conn) error) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := serve(conn); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}
