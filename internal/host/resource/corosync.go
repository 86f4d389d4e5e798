package resource

import (
	"fmt"
	"strings"
)

// CorosyncNode is a member of the cluster with its address on each ring.
type CorosyncNode struct {
	ID    int
	Name  string
	Rings []string
}

// Corosync is the cluster's membership: its configuration and its key.
type Corosync struct {
	Cluster string
	TokenMS int
	// ConsensusMS is at least 1.2 x TokenMS.
	ConsensusMS int
	Nodes       []CorosyncNode
	Key         []byte // secret
}

func (c *Corosync) Identity() (kind, id string) { return "corosync", c.Cluster }

// Diff compares both files. A running corosync takes most changes by a
// reload; it is restarted, with Pacemaker, where the key changed.
func (c *Corosync) Diff(sys Look) ([]Action, error) {
	key := TextFile{Path: "/etc/corosync/authkey", Content: c.Key, Mode: 0o400, Secret: true,
		Why: "both rings are encrypted with it"}
	conf := TextFile{Path: "/etc/corosync/corosync.conf", Content: []byte(c.Text())}
	ka, ca := sys.Want(&key), sys.Want(&conf)
	var reload []Action
	if sys.Runs("corosync.service") {
		if len(ka) > 0 {
			return nil, Refuse("corosync-other-key", nil)
		}
		reload = []Action{{Title: "reload corosync", Cmd: []string{"corosync-cfgtool", "-R"}}}
	}
	return WithReload(sys, "corosync", append(ka, ca...), reload), nil
}

// Text is corosync.conf(5).
func (c *Corosync) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, Header+`totem {
	version: 2
	cluster_name: %s
	transport: knet
	# Encrypted and authenticated: a host that can speak on a ring could have a
	# server fenced.
	crypto_cipher: aes256
	crypto_hash: sha256
	# A node that is silent for so long (ms) is taken for lost and fenced.
	token: %d
	consensus: %d
	# Every message goes over both rings. With passive a ring that has just come
	# back and is lost again costs the token, and a healthy server its power: knet
	# gives such a ring ten times the time to answer.
	link_mode: active
}

nodelist {
`, c.Cluster, c.TokenMS, c.ConsensusMS)
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "\tnode {\n\t\tname: %s\n\t\tnodeid: %d\n", n.Name, n.ID)
		for i, r := range n.Rings {
			fmt.Fprintf(&b, "\t\tring%d_addr: %s\n", i, r)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString(`}

quorum {
	provider: corosync_votequorum
	# Two nodes: one left over stays quorate, and fences the other before it
	# takes the service.
	two_node: 1
	# After a start from nothing both must be seen once, or a node that was
	# fenced and lost its network would come back and fence the healthy one.
	wait_for_all: 1
}

logging {
	to_logfile: no
	to_stderr: no
	to_syslog: yes
	timestamp: hires
}
`)
	return b.String()
}
