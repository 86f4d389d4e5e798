package rack

import (
	"fmt"
	"os"
	"syscall"

	"github.com/mortarhpc/mortar/internal/base/netns"
	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// SSH replaces this process by an ssh client that is logged in to a node,
// from inside the rack's network namespace and with the node's host key
// pinned. It returns only if that fails.
func SSH(dir, node string, command []string) error {
	r, err := openRack(dir)
	if err != nil {
		return err
	}
	n, err := r.cfg.Node(node)
	if err != nil {
		return err
	}
	path := tool.Path("ssh")
	if path == "ssh" {
		return tool.Refuse("ssh is not installed: apt-get install openssh-client")
	}
	argv := append(sshArgs(r, n), command...)
	return netns.Do(r.cfg.Netns(), func() error {
		if err := syscall.Exec(path, argv, os.Environ()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

func sshArgs(r *rack, n *hw.Node) []string {
	return []string{"ssh", "-F", "none", "-i", identityFile(r.dir),
		"-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + knownHostsFile(r.dir),
		"-o", "GlobalKnownHostsFile=none", "-o", "HostKeyAlias=" + n.Name, "-o", "ConnectTimeout=10",
		// A node whose power is cut answers nothing: the session ends after a minute.
		"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4",
		"root@" + r.cfg.AdminAddress(n).String()}
}
