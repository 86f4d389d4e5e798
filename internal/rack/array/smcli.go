package array

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/mortarhpc/mortar/internal/rack/hw"
	"github.com/mortarhpc/mortar/internal/rack/tool"
)

// The rack's servers have a program SMcli, which sends the command behind -c to the first
// controller that answers, and prints the answer. The protocol between Dell's program and an
// MD3 is not written down; the words of command and answer are.
//
// Sources: Dell PowerVault Modular Disk Storage Arrays CLI Guide, show storageArray
// healthStatus; outputs published with monitoring plugins (check_engenio_raid, sos).

// SMcliPort is the port at which an array takes commands.
const SMcliPort = 2463

// SMcliProgram is SMcli on a server of the rack: SMcli ADDRESS... [-S] -c COMMAND
//
//go:embed smcli.sh
var SMcliProgram string

// Perccli is the tool of a server's RAID cards, which answers one command.
func Perccli(command string, cards []string) string {
	return "#!/bin/bash\n[ \"$*\" = '" + command + "' ] || { echo 'perccli of the virtual rack answers " + command + " only' >&2; exit 1; }\ncat << 'END'\n" +
		`{"Controllers":[` + strings.Join(cards, ",") + "]}\nEND\n"
}

// ServeSMcli answers commands, one for each connection, until the listener fails.
func ServeSMcli(l net.Listener, answer func(command string) string) error {
	return tool.ServeConns(l, func(conn net.Conn) error {
		err := conn.SetDeadline(time.Now().Add(2 * hw.ArrayTime))
		if err == nil {
			var line string
			if line, err = bufio.NewReader(io.LimitReader(conn, 1<<16)).ReadString('\n'); err == nil {
				_, err = io.WriteString(conn, answer(strings.TrimSpace(line)))
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("SMcli: %w", err)
		}
		return nil
	})
}

// SMcli answers a command of SMcli from the firmware's output.
func SMcli(e *hw.Enclosure, h *hw.Hardware, said, command string) string {
	if !strings.EqualFold(command, "show storageArray healthStatus;") {
		return "The rack's array answers show storageArray healthStatus; only. SMcli failed.\n"
	}
	var failures []string
	fail := func(title, component, status string) {
		failures = append(failures, fmt.Sprintf("%s\nStorage array: %s\nComponent reporting problem: %s\n  Status: %s\n", title, strings.TrimPrefix(e.Name, "enc-"), component, status))
	}
	fixing := false
	for c := range hw.Controllers {
		if h.ModulesOut[hw.ModuleKey(e.Name, c)] {
			fail("Offline RAID Controller Module", fmt.Sprintf("RAID controller module in slot %d", c), "Offline")
		}
	}
	for _, g := range Groups(e.Array, said) {
		switch g.State {
		case "failed":
			fail("Failed Virtual Disk", "Disk group "+g.Name, "Failed")
		case "degraded":
			fail("Degraded Virtual Disk", "Disk group "+g.Name, "Degraded")
		case "rebuilding":
			fixing = true
		case "unknown":
			fail("Disk Group of Unknown State", "Disk group "+g.Name, "Unknown")
		}
	}
	for i, d := range e.Array.Disks {
		if h.DisksOut[d.Name] {
			fail("Removed Physical Disk", "Physical disk at enclosure.slot "+slotName(e, i), "Removed")
		}
	}
	switch {
	case len(failures) > 0:
		return "The following failures have been found:\n" + strings.Join(failures, "\n")
	case fixing:
		return "Storage array health status = fixing.\n"
	}
	return "Storage array health status = optimal.\n"
}
