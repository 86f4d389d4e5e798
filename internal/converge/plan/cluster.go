package plan

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/mortarhpc/mortar/internal/base/lists"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/host/resource"
)

// clusterPart makes the cluster of a pair: its daemons, its configuration, its fencing.
type clusterPart struct{ *builder }

// membership is Corosync and Pacemaker, up to a complete cluster.
func (b clusterPart) membership() error {
	ha := b.pair.HA
	key, err := b.secrets(CorosyncKey)
	if err != nil {
		return err
	}
	consensus, err := strconv.Atoi(b.value("corosync", "consensus", strconv.Itoa(ha.TokenMS*6/5)))
	if err != nil {
		return fmt.Errorf("consensus: %w", err)
	}
	c := &resource.Corosync{Cluster: ha.Cluster, TokenMS: ha.TokenMS, ConsensusMS: consensus, Key: key}
	var nodes []string
	for _, n := range ha.Nodes {
		c.Nodes = append(c.Nodes, resource.CorosyncNode{ID: n.ID, Name: n.Name, Rings: n.Rings})
		nodes = append(nodes, n.Name)
	}
	for _, h := range b.servers {
		b.add(StageMembership, h, "directory /etc/mortar", &resource.Directory{Path: "/etc/mortar", Mode: 0o700})
		b.add(StageMembership, h, "directory for secrets", &resource.Directory{Path: secretsDir, Mode: 0o700})
		for _, f := range fenceDevices(b.pair) {
			if f.SNMP != nil {
				conf, err := b.snmpConfig(f)
				if err != nil {
					return err
				}
				b.add(StageMembership, h, "secret of "+f.ID, &resource.TextFile{
					Path: SecretPath(f), Content: conf, Mode: 0o600, Secret: true,
					Why: "read by net-snmp's commands, so that it is in no argument and not in the CIB",
				})
				continue
			}
			if f.SecretParam == "community" || f.SecretFile == "" {
				continue
			}
			if err := b.secretScript(h, f.ID, SecretPath(f), f.SecretFile); err != nil {
				return err
			}
		}
		if err := b.fenceAgents(h); err != nil {
			return err
		}
		order := resource.DropIn("resource-agents-deps.target", "# Pacemaker starts after these, and stops before them at shutdown.\n"+
			"[Unit]\nRequires=rpcbind.socket\nAfter=rpcbind.socket multipathd.service\n")
		b.add(StageMembership, h, "order of stopping", &order)
		for _, s := range b.settings("server", "systemd") {
			b.add(StageMembership, h, s.Name, map[string]resource.Resource{
				"RuntimeWatchdogSec": &resource.Watchdog{Timeout: s}, "CPUWeight": resource.ClusterSlice(s)}[s.Name])
		}
		b.add(StageMembership, h, "corosync", c)
		b.add(StageMembership, h, "cluster units", &resource.Units{Name: "cluster", NoWait: true, List: []resource.Unit{
			{Name: "corosync.service", Enabled: true, Active: true},
			{Name: "pacemaker.service", Enabled: true, Active: true},
		}})
	}
	b.add(StageCluster, b.configurator(), "cluster "+ha.Cluster, &resource.Cluster{Name: ha.Cluster, Nodes: nodes, Seconds: 180})
	return nil
}

// configurator is the server the cluster is configured from: one that has a
// ready cluster, or the first.
func (b clusterPart) configurator() string {
	for _, s := range b.servers {
		if c := b.facts.Hosts[s].Cluster; c != nil && c.DC.Present {
			return s
		}
	}
	return b.servers[0]
}

// SecretPath is where a fence device's secret is kept on the servers. Of a
// user of SNMPv3 it is a configuration of net-snmp's commands: as options of
// the fence agent the pass phrases would be arguments of those commands, which
// every user of the server can read.
//
// Source: snmp.conf(5); fencing_snmp.py, prepare_cmd
func SecretPath(f design.FenceDevice) string {
	if f.SNMP != nil {
		return secretsDir + "/" + f.ID + "/snmp.conf"
	}
	return secretsDir + "/" + f.ID
}

// scripted tells whether agents take a secret from a script that prints it; other secrets are in
// the CIB, whose files are readable by the cluster's own user only.
// Source: fence-agents, lib/fencing.py, password_script, snmp_priv_passwd_script
func scripted(name string) bool {
	return slices.Contains([]string{"password", "passwd", "snmp_priv_passwd"}, name)
}

// secretPathOf is where one of several secrets of a fence device is kept. No ID of a
// device has a dot in this place.
func secretPathOf(f design.FenceDevice, name string) string { return SecretPath(f) + "." + name }

// secretScript writes a secret and the script that gives it to a fence agent.
func (b clusterPart) secretScript(h, id, path, file string) error {
	secret, err := secretLine(file, b.secrets)
	if err != nil {
		return err
	}
	b.add(StageMembership, h, "secret of "+id, &resource.TextFile{
		Path: path, Content: append([]byte(secret), '\n'), Secret: true,
		Why: "given to the fence agent by a script, so that it is in no argument and not in the CIB",
	})
	b.add(StageMembership, h, "script for the secret of "+id, &resource.TextFile{
		Path: path + ".sh", Mode: 0o700,
		Content: []byte("#!/bin/sh\n" + resource.Header + "exec cat " + path + "\n"),
	})
	return nil
}

// fenceAgents prepares a server for the agents that the spec names: their secrets, and whether
// they have the options.
func (b clusterPart) fenceAgents(h string) error {
	for _, f := range fenceDevices(b.pair) {
		if f.Params["pcmk_host_argument"] == "" {
			continue // Mortar knows its options
		}
		a := &resource.FenceAgent{Agent: f.Agent}
		for name := range f.Params {
			if !strings.HasPrefix(name, "pcmk_") {
				a.Options = append(a.Options, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(f.Secrets)) {
			a.Options = append(a.Options, name)
			if !scripted(name) {
				continue
			}
			a.Options = append(a.Options, name+"_script")
			if err := b.secretScript(h, f.ID, secretPathOf(f, name), f.Secrets[name]); err != nil {
				return err
			}
		}
		slices.Sort(a.Options)
		b.add(StageMembership, h, "options of "+f.ID, a)
	}
	return nil
}

// secretParams are the parameters of fence devices in the CIB that are never shown.
func secretParams(p *design.Pair) []string {
	out := []string{"community"}
	for _, f := range fenceDevices(p) {
		for _, name := range slices.Sorted(maps.Keys(f.Secrets)) {
			if !scripted(name) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// snmpCommands are the parameters by which the fence agent calls net-snmp's
// commands with the configuration of SecretPath and no other. The
// configuration for one host that net-snmp looks for itself is not found: the
// agent names the port with the address.
//
// Source: fence_apc_snmp(8), snmpget_path; snmp_config(5), SNMPCONFPATH
func snmpCommands(f design.FenceDevice) map[string]string {
	out := map[string]string{}
	for _, c := range []string{"snmpget", "snmpset", "snmpwalk"} {
		out[c+"_path"] = "/usr/bin/env SNMPCONFPATH=" + path.Dir(SecretPath(f)) + " /usr/bin/" + c
	}
	return out
}

// snmpConfig is the file of SecretPath for a user of SNMPv3.
// Source: snmp.conf(5)
func (b clusterPart) snmpConfig(f design.FenceDevice) ([]byte, error) {
	var lines strings.Builder
	lines.WriteString(resource.Header)
	fmt.Fprintf(&lines, "defVersion 3\ndefSecurityName %s\ndefSecurityLevel authPriv\ndefAuthType %s\ndefPrivType %s\n", f.SNMP.User, f.SNMP.Auth, f.SNMP.Privacy)
	for _, x := range []struct{ key, file string }{{"defAuthPassphrase", f.SNMP.AuthFile}, {"defPrivPassphrase", f.SNMP.PrivacyFile}} {
		s, err := secretLine(x.file, b.secrets)
		if err != nil {
			return nil, err
		}
		// Source: RFC 3414, section 11.2; the file's quoting has no escape for all.
		if len(s) < 8 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return nil, fmt.Errorf("secret file %s: a pass phrase of SNMPv3 has 8 characters or more, of ASCII without quotes and backslashes", x.file)
		}
		fmt.Fprintf(&lines, "%s \"%s\"\n", x.key, s)
	}
	return []byte(lines.String()), nil
}

// topology are the levels of all nodes of a cluster.
func topology(h *design.HA) []*design.FenceLevel {
	return lists.Flat(h.Nodes, func(n design.Node) []*design.FenceLevel { return h.Topology(n.Name) })
}

// fenceDevices are all of a pair's, once.
func fenceDevices(p *design.Pair) []design.FenceDevice {
	var out []design.FenceDevice
	for _, l := range topology(p.HA) {
		for _, f := range l.Devices {
			if !slices.ContainsFunc(out, func(o design.FenceDevice) bool { return o.ID == f.ID }) {
				out = append(out, f)
			}
		}
	}
	return out
}

// secretLine is one line of a file; the newline an editor added is no part of it.
func secretLine(file string, read func(file string) ([]byte, error)) (string, error) {
	s, err := read(file)
	if err != nil {
		return "", err
	}
	t := strings.TrimRight(string(s), "\r\n")
	if t == "" || strings.ContainsAny(t, "\n\r\x00") {
		return "", fmt.Errorf("secret file %s: one line with the secret is wanted", file)
	}
	return t, nil
}

func (b clusterPart) configuration() error {
	cib, err := b.cib()
	if err != nil {
		return err
	}
	at := b.configurator()
	cluster, service := StageCluster, StageService
	if b.pair.Role == "oss" {
		cluster, service = stageOSSCluster+b.pair.Name, stageOSSService+b.pair.Name
	}
	b.add(cluster, at, "cluster configuration", &resource.CIB{
		Configuration: cib.String(), Owned: []string{"service-", "fence-", "fencing-", "locate-", "order-", "mortar-"}, Secret: secretParams(b.pair),
	})
	if len(b.services()) > 0 && !b.stock() {
		ids := lists.Map(b.services(), func(s *design.Service) string { return resource.ServiceID(s.Name) })
		// First: a service that is thought impossible on a server would not start there.
		b.add(service, at, "each server can serve", &resource.Everywhere{Resource: watchID, Able: ids, Servers: b.servers, Seconds: 120})
	}
	for _, s := range b.services() {
		// Watched from the other server: this one is busy starting it.
		at = b.servers[0]
		if at == s.Preferred && len(b.servers) > 1 {
			at = b.servers[1]
		}
		b.add(service, at, "service "+s.Name, &resource.Running{
			Name: "service " + s.Name, Resources: []string{resource.ServiceID(s.Name)}, Seconds: max(300, startSeconds(b.d)+120),
		})
	}
	fencing := lists.Map(fenceDevices(b.pair), func(f design.FenceDevice) string { return f.ID })
	// Last, because the clients need not wait for the devices to be tried.
	b.add(StageFencing, at, "fence devices", &resource.Running{Name: "fencing", Resources: fencing, Seconds: 600})
	return nil
}
