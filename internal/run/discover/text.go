package discover

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/template"

	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host/resource/storage"
)

//go:embed brick.yaml.tmpl
var text string

// Text is the draft as a commented spec.
func (d *Draft) Text() (string, error) {
	t, err := template.New("brick.yaml").Funcs(template.FuncMap{
		"memory": memory, "speed": speed, "lists": diskLists, "words": words, "outlet": func(i int) int { return i + 1 },
		"usable": usable, "join": strings.Join, "clock": clock,
	}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, d); err != nil {
		return "", err
	}
	return b.String(), nil
}

// Pair reports whether there are two servers.
func (d *Draft) Pair() bool { return len(d.Servers) == 2 }

// Managed is the network of the BMCs and PDUs.
func (d *Draft) Managed() *network {
	if d.Networks.Management != nil {
		return d.Networks.Management
	}
	return d.Networks.Public
}

// Free counts the disks of the layout.
func (d *Draft) Free() int {
	n := 0
	for _, e := range d.Enclosures {
		n += len(e.Disks)
	}
	return n
}

// memory formats the memory that the kernel reports, rounded down to MiB.
func memory(bytes int64) string { return (spec.Bytes(bytes) / spec.MiB * spec.MiB).String() }

func speed(mbps int) string {
	if mbps%1000 == 0 {
		return fmt.Sprintf("%dGb/s", mbps/1000)
	}
	return fmt.Sprintf("%dMb/s", mbps)
}

// clock is a processor's nominal clock in MHz, from its model name; 0 if the name
// has none.
func clock(model string) int {
	_, ghz, _ := strings.Cut(model, "@ ")
	f, err := strconv.ParseFloat(strings.TrimSuffix(ghz, "GHz"), 64)
	if err != nil {
		return 0
	}
	return int(f*1000 + 0.5)
}

// sold formats a size as vendors do: three digits, rounded down.
func sold(bytes int64) string {
	unit := int64(1)
	for bytes/unit >= 1000 {
		unit *= 10
	}
	return spec.Bytes(bytes / unit * unit).String()
}

// kindOf is a spec's word for a kind of disk. It cannot distinguish 7,200 from 10,000
// rpm.
func kindOf(d storage.DiskHardware) string {
	switch {
	case strings.HasPrefix(d.Paths[0], "nvme"):
		return "nvme"
	case !d.Rotating:
		return "ssd"
	}
	return "nl-sas"
}

// usable reports whether a spec can name the disk by its serial number.
func usable(serial string) bool {
	_, err := spec.DiskList{Serial: serial}.Serials()
	return err == nil
}

var lastNumber = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(.*?)([0-9]{1,9})$`) })

// splitSerial splits a serial number into a prefix and the number at its end.
func splitSerial(serial string) (string, string) {
	m := lastNumber().FindStringSubmatch(serial)
	if m == nil {
		return serial, ""
	}
	return m[1], m[2]
}

// list is one line of an enclosure's disks.
type list struct{ Serial, Size, Type, From, To string }

// diskLists joins similar disks with consecutive serial numbers.
func diskLists(disks []storage.DiskHardware) []list {
	var out []list
	for i := 0; i < len(disks); {
		j := i + 1
		for j < len(disks) && follows(disks[j-1], disks[j]) {
			j++
		}
		l := list{Serial: disks[i].Serial, Size: sold(disks[i].Size), Type: kindOf(disks[i]), From: disks[i].Serial, To: disks[j-1].Serial}
		if j > i+1 {
			head, a := splitSerial(disks[i].Serial)
			_, b := splitSerial(disks[j-1].Serial)
			l.Serial = fmt.Sprintf("%s[%s-%s]", head, a, b)
		}
		out, i = append(out, l), j
	}
	return out
}

func follows(a, b storage.DiskHardware) bool {
	ha, na := splitSerial(a.Serial)
	hb, nb := splitSerial(b.Serial)
	x, errA := strconv.Atoi(na)
	y, errB := strconv.Atoi(nb)
	return errA == nil && errB == nil && ha == hb && len(na) == len(nb) && y == x+1 && sold(a.Size) == sold(b.Size) && kindOf(a) == kindOf(b)
}
