package spec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// docs/spec.md is made from the types' tags: `go test ./internal/brick/spec -update`.
func TestReference(t *testing.T) {
	golden(t, "../../../docs/spec.md", reference())
}

const referenceHead = `# The spec file

<!-- Made from the types in internal/brick/spec by ` + "`go test ./internal/brick/spec -update`" + `; do not edit. -->

One file describes one brick. ` + "`mortar init nfs-ha > brick.yaml`" + ` writes a commented one to start from, ` + "`mortar check brick.yaml`" + `
validates it and shows what follows from it. The file is YAML without anchors, aliases and tags. An unknown key, a wrong
type, a broken rule: each is refused with ` + "`file:line:column`" + `, what is wrong and how to mend it (exit code 2, nothing changed).

- **Sizes** always have a unit: ` + "`4TB`" + ` is 4 x 10^12 bytes, as disks are sold; ` + "`4TiB`" + ` is 4 x 2^40 bytes. ` + "`4`" + ` and ` + "`4T`" + ` are refused.
- **Disks** are named by serial number, as ` + "`lsblk -d -o NAME,SERIAL,WWN`" + ` prints it, in bay order; ` + "`MA[01-12]`" + ` stands for MA01 to MA12.
  Names the kernel hands out (` + "`/dev/sda`" + `, ` + "`mpatha`" + `) are refused.
- **Clients** are named one by one, or as ranges of at most 10,000 in all: ` + "`{name: \"c[001-400]\", address: 10.3.1.1, public: 10.1.1.1}`" + ` has 400, and c400 the addresses 10.3.2.144 and 10.1.2.144. ` + "`{count: 1100}`" + ` counts so many others.
- **Secrets** are never in the file, only the names of the files they are in, relative to the spec.
- **Identities** (array and file system UUIDs, export fsid) follow from the brick's name, so a brick keeps them for ever. Give no two
  bricks that might ever meet the same name.
- **Two services** (flavour nfs-ha-xl): each server prefers one of them (` + "`" + `services[].server` + "`" + `), each enclosure's disks are for one
  (` + "`" + `enclosures[].service` + "`" + `), the public network is Ethernet. ` + "`" + `mortar init nfs-ha-xl` + "`" + ` prints one.
- **Systems of published papers** are files to start from: [an example of each](systems.md); for Lustre see [its page](lustre.md).

`

const referenceRules = `## Rules

A file that breaks one of these is refused:

- Names, addresses, serial numbers, WWNs and PDU outlets are there once. Every address is in its network.
- HA has two servers, a private network besides the public one, and for each server two levels of fencing: its BMC (or an entry of fencing
  without a feed), then its outlets on PDUs (or entries with a feed) of at least two power feeds, covering every feed of the server.
- HA exports are ` + "`sync`" + `. ` + "`no_root_squash`" + ` is granted to networks by name, never to everybody. The root of a volume is not exported.
- A lease in HA is 30 s or longer; the grace period is not shorter than the lease.
- Every disk has a use: groups times width plus spares is the number of disks. Disks of one service, or
  of one Lustre module, are alike. On arrays this holds for each array, and a group is on one array.
- An array makes only the levels, chunks and widths its model can, on no more enclosures than it drives. A controller inside of a server is for
  flavour ` + "`nfs`" + `: no other server could take its disks over.
- A write-back cache has two to four SSDs: dirty data is on two of them.
- Lustre has one HA-MDS, at least one HA-OSS, two servers in each, and every server in one of them. Metadata are on mirrors, OSTs on RAID 6.
  An HA-OSS has an even number of OSTs, and the MDT at least as many inodes as all OSTs.
- ` + "`wipe`" + ` takes serial numbers of this brick's disks, one by one: no ranges, no patterns.

What the hardware makes impossible to keep is a warning with its line, in the output of ` + "`mortar check`" + `: RAID groups with more disks in an
enclosure than they can lose, no hot spare, a write cache that is not mirrored, ` + "`async`" + ` with one server, an export to the world, a client's card in a narrower slot than the storage's.
Mount options of XFS and Lustre settings of the past are translated, with a warning that says how.
`

func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	type section struct {
		title, path string
		typ         reflect.Type
	}
	queue := []section{{"Top level", "", reflect.TypeOf(Spec{})}}
	titles := map[reflect.Type]string{queue[0].typ: queue[0].title} // one type under two keys has one section
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		fmt.Fprintf(&b, "## %s\n\n| key | type | default | meaning |\n|---|---|---|---|\n", s.title)
		for i := range s.typ.NumField() {
			f := s.typ.Field(i)
			name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			typ, sub := describeType(f.Type)
			def := "**required**"
			if opts == "omitempty" {
				def = ""
				if d, ok := f.Tag.Lookup("default"); ok {
					def = "`" + strings.Trim(d, "<>") + "`"
					if strings.Contains(d, "/<") {
						def = "`" + d + "`"
					}
				}
			}
			path := name
			if s.path != "" {
				path = s.path + "." + name
			}
			if sub != nil {
				if titles[sub] == "" {
					titles[sub] = path
					queue = append(queue, section{path, path, sub})
				}
				title := titles[sub]
				typ = fmt.Sprintf("%s [%s](#%s)", typ, title, strings.ReplaceAll(strings.ToLower(title), ".", ""))
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, typ, def, f.Tag.Get("doc"))
		}
		b.WriteString("\n")
	}
	b.WriteString(referenceRules)
	return b.String()
}

func describeType(t reflect.Type) (string, reflect.Type) {
	switch {
	case t == bytesType:
		return "size", nil
	case t.Kind() == reflect.Pointer:
		return describeType(t.Elem())
	case t.Kind() == reflect.Int:
		return "whole number", nil
	case t.Kind() == reflect.Bool:
		return "true or false", nil
	case t.Kind() == reflect.String:
		return "text", nil
	case t.Kind() == reflect.Map:
		return "mapping of names to text", nil
	case t.Kind() == reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "list of text", nil
		}
		return "list of", t.Elem()
	}
	return "mapping", t
}

// Every optional field's default tag can be applied, and every field is
// documented.
func TestTags(t *testing.T) {
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); !f.IsExported() || name == "-" {
				continue
			}
			if f.Tag.Get("doc") == "" || f.Tag.Get("yaml") != f.Tag.Get("json") {
				t.Errorf("%s.%s: tags are incomplete: %s", typ, f.Name, f.Tag)
			}
			setDefault(reflect.New(f.Type).Elem(), f)
			if _, sub := describeType(f.Type); sub != nil {
				walk(sub)
			}
		}
	}
	walk(reflect.TypeOf(Spec{}))
}
