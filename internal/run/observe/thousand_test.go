package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortarhpc/mortar/examples"
	"github.com/mortarhpc/mortar/internal/brick/design"
	"github.com/mortarhpc/mortar/internal/brick/spec"
	"github.com/mortarhpc/mortar/internal/host"
)

// How long a host of a virtual rack takes for a login with a copy of the binary that
// is there already, and for an answer. Real hosts are faster.
const (
	loginTime  = time.Second
	answerTime = 500 * time.Millisecond
)

// hungLine never answers.
type hungLine struct{}

func (hungLine) Call(ctx context.Context, _ string, _, _ any, _ func(json.RawMessage)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hungLine) Close() {}

// slowLine answers with the facts of a healthy brick as late as a host does.
type slowLine struct{ facts []byte }

func (l slowLine) Call(ctx context.Context, _ string, _, result any, _ func(json.RawMessage)) error {
	select {
	case <-time.After(answerTime):
		return json.Unmarshal(l.facts, result)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (slowLine) Close() {}

// thousand is a brick with two servers and clients, a thousand hosts in all.
func thousand(tb testing.TB) *design.Design {
	b, err := examples.FS.ReadFile("nfs-ha.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	text, _, _ := strings.Cut(string(b), "\nclients:")
	var clients strings.Builder
	for i := range 998 {
		fmt.Fprintf(&clients, "  - {name: n%03d, address: 10.77.%d.%d, public: 10.77.%d.%d}\n", i, 16+i/200, 1+i%200, 32+i/200, 1+i%200)
	}
	text = strings.ReplaceAll(text, "10.77.1.0/24", "10.77.32.0/20")
	text = strings.ReplaceAll(text, "10.77.3.0/24", "10.77.16.0/20")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "10.77.1.", "10.77.47."), "10.77.3.", "10.77.31.")
	s, err := spec.Parse("brick.yaml", []byte(text+"\nclients:\n"+clients.String()))
	if err != nil {
		tb.Fatal(err)
	}
	d, err := design.New(s)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// BenchmarkThousandHosts asks 1,000 hosts that answer as late as real ones, and judges
// the answers; then with one of them that hangs, which costs its own row and the
// timeout of 30 s.
func BenchmarkThousandHosts(b *testing.B) {
	d := thousand(b)
	answers := map[string][]byte{}
	for name, a := range healthy(b, theDesign(b)).Hosts {
		raw, err := json.Marshal(a.Host)
		if err != nil {
			b.Fatal(err)
		}
		answers[name] = raw
	}
	for _, hung := range []string{"", "n500"} {
		dial := func(ctx context.Context, name string) (*host.Session, error) {
			select {
			case <-time.After(loginTime):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if name == hung {
				return host.New(name, hungLine{}), nil
			}
			raw := answers[name]
			if raw == nil {
				raw = answers["c1"]
			}
			return host.New(name, slowLine{raw}), nil
		}
		b.Run("hung="+hung, func(b *testing.B) {
			for b.Loop() {
				f := NewCollector(d, dial, 30*time.Second).Collect(b.Context())
				for name, a := range f.Hosts {
					if (a.Host == nil) != (name == hung) {
						b.Errorf("%s: %q", name, a.Err)
					}
				}
				if s := Judge(d, f); len(f.Hosts) != 1000 || len(s.Parts) == 0 {
					b.Errorf("%d hosts, %d parts", len(f.Hosts), len(s.Parts))
				}
			}
			b.ReportMetric(float64(peakKiB(b))/1024, "MiB-peak")
		})
	}
}

// peakKiB is the most memory that this process has had. Source: proc_pid_status(5)
func peakKiB(tb testing.TB) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
