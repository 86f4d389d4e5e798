package prepared

import (
	"regexp"
	"strconv"
	"strings"
)

// known is a version that harms, from one on and below the one that mends it.
type known struct {
	what        string // kernel, a package, disk or hba
	model       string // pattern of disks and HBAs
	from, fixed string
	harm        string
	source      string
}

// knownBad are versions that public sources call bad. The rows of Enterprise Linux 6 and 7 are
// the papers' own.
var knownBad = []known{
	{"kernel", "", "6.1.64", "6.1.66", "ext4 writes direct I/O to wrong places: files of the server's own system are damaged", "https://bugs.debian.org/1057843"},
	{"kernel", "", "6.3", "6.3.5", "XFS damages its metadata", "kernel.org, ChangeLog-6.3.5: xfs: fix livelock in delayed allocation at ENOSPC"},
	{"kernel", "", "3.10.0-957", "3.10.0-957.5.1", "an NFS mount hangs, with a kworker at 100 %", "paper NSS7.4-HA; https://access.redhat.com/solutions/3742871"},
	{"kernel", "", "2.6.32-279", "2.6.32-279.14.1", "XFS has bugs that its errata kernel mends", "paper NFS+DFC, 2.4.2"},
	{"pacemaker", "", "2.1.3", "2.1.4", "the fencer uses freed memory, and finds no fence device by an attribute of its target", "https://github.com/ClusterLabs/pacemaker/pull/2726"},
	{"resource-agents", "", "4.1.1-12", "4.1.1-12.el7_6.4", "nfsserver does not start, because nfs-idmapd fails", "paper NSS7.4-HA; https://access.redhat.com/solutions/3746891"},
	{"lvm2", "", "2.02.180-10", "2.02.180-10.el7_6.2", "lvcreate and lvextend damage the first 128 KiB of a physical volume in use", "paper NSS7.4-HA; release notes of RHEL 7.6"},
	{"disk", `^HPE? +(VO(0480JFDGT|0960JFDGU|1920JFDGV|3840JFDHA)|MO(0400JFFCF|0800JFFCH|1600JFFCK|3200JFFCL))`, "HPD", "HPD8", "the SSD and its data are gone after 32,768 hours of power", "HPE advisory a00092491en_us"},
	{"disk", `^HPE? +(EK0800JVYPN|EO1600JVYPP|MK0800JVYPQ|MO1600JVYPR)`, "HPD", "HPD7", "the SSD and its data are gone after 40,000 hours of power", "HPE advisory a00097382en_us"},
	{"hba", `9300-`, "16.00", "16.00.12.00", "the controller resets under load of SATA disks", "https://www.truenas.com/docs/files/LSI9300xxFirmwareUpdatev1_0.pdf"},
}

// has says whether a version of a thing is among those of the row.
func (k known) has(v Version) bool {
	return k.what == v.What && older(v.Version, k.fixed) && !older(v.Version, k.from) && (k.model == "" || regexp.MustCompile(k.model).MatchString(v.Model))
}

// older compares two versions as package managers do, epochs aside: run by run, digits as numbers.
// The longer of two that begin alike is the newer.
func older(a, b string) bool {
	x, y := runs(a), runs(b)
	for i := range x {
		if i >= len(y) {
			return false
		}
		n, err1 := strconv.Atoi(x[i])
		m, err2 := strconv.Atoi(y[i])
		switch {
		case x[i] == y[i] || err1 == nil && err2 == nil && n == m:
		case err1 == nil && err2 == nil:
			return n < m
		case err1 == nil || err2 == nil:
			return err2 == nil // digits are newer than letters
		default:
			return x[i] < y[i]
		}
	}
	return len(x) < len(y)
}

var run = regexp.MustCompile(`[0-9]+|[A-Za-z]+`)

func runs(version string) []string {
	if epoch, rest, ok := strings.Cut(version, ":"); ok && strings.Trim(epoch, "0123456789") == "" {
		version = rest
	}
	return run.FindAllString(version, -1)
}
