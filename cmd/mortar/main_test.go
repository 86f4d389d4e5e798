package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// An unknown word after a group of commands is refused, not answered with help.
func TestUnknownCommand(t *testing.T) {
	groups := 0
	for _, c := range newRootCmd().Commands() {
		if !c.HasSubCommands() {
			continue
		}
		groups++
		if out, code, err := runCmd(t, "", c.Name(), "qqqqqqqq"); code != exitBadInput || err == nil || out != "" {
			t.Errorf("%s: %d, %v, %q", c.Name(), code, err, out)
		}
		if out, code, err := runCmd(t, "", c.Name()); code != 0 || err != nil || out == "" {
			t.Errorf("%s alone: %d, %v, %q", c.Name(), code, err, out)
		}
	}
	if groups < 2 {
		t.Errorf("%d groups of commands; array and rack at least", groups)
	}
	for _, c := range []struct{ args, want string }{
		{"array scrip", `did you mean "mortar array script"?`},
		{"rack dwon", `did you mean "mortar rack down"?`},
		{"rack foo", "use "},
		{"array foo", "use script, verify"},
		{"chekc", `did you mean "mortar check"?`},
		{"chekc --json", `did you mean "mortar check"?`},
		{"help chekc", `did you mean "mortar check"?`},
	} {
		if _, code, err := runCmd(t, "", strings.Fields(c.args)...); code != exitBadInput || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "_pdu") {
			t.Errorf("%s: %d, %v", c.args, code, err)
		}
	}
}

// Shell completion uses a hidden command.
func TestCompletion(t *testing.T) {
	if out, code, err := runCmd(t, "", cobra.ShellCompRequestCmd, "dri"); code != 0 || err != nil || !strings.HasPrefix(out, "drill\t") {
		t.Errorf("%q, %d, %v", out, code, err)
	}
}

// A shell completes what the spec and the table of drills have, and files of specs alone.
func TestCompletesNames(t *testing.T) {
	ha, lustre, cached := "../../examples/nfs-ha.yaml", "../../examples/lustre-rack.yaml", "../../examples/nfs-dfc.yaml"
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("servrs: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"check ":                ":8",
		"drill run ":            ":8",
		"drill run " + ha + " ": "server-crash\t",
		"drill run " + ha + " server-crash --how ": "panic\t",
		"drill versus " + ha + " path-one --how ":  "disk\t",
		"drill all " + ha + " --service ":          "home",
		"demo --drill ":                            "rack-power\t",
		"demo --how ":                              "power\t",
		"demo --drill bit-rot --how ":              "scrub\t",
		"disk fail " + ha + " ":                    "MA01",
		"cache remove " + cached + " x ":           "SSD02",
		"failover " + ha + " ":                     "home",
		"quota show " + ha + " --service ":         "home",
		"quota set " + ha + " ":                    "project",
		"cache mode " + ha + " ":                   "write-back",
		"standby " + ha + " ":                      "nfs2",
		"client-config " + ha + " --client ":       "c1",
		"check " + ha + " --profile ":              "stock",
		"lustre ost drain " + lustre + " ":         "testfs-OST0001",
		"disk fail " + bad + " ":                   ":4",
		"init ":                                    "nfs-ha-xl",
		"report ":                                  ":0",
		"drill all " + ha + " --only ":             "path-one\t",
		"drill versus " + ha + " --only path-one,": "path-one,server-crash-panic\t",
		"drill all " + ha + " --skip ":             "server-crash-power\t",
		"rack ssh " + ha + " ":                     "c1",
		"rack fault " + ha + " ":                   "link-down\t",
		"rack fault " + ha + " path-out ":          "nfs1",
		"rack fault " + ha + " path-out nfs1 ":     "MA01",
		"rack fault " + ha + " link-down c1 ":      "private",
		"rack fault " + ha + " feed-off ":          "pdu-a",
		"rack fault " + ha + " paths-out nfs1 ":    "A",
		"rack fault " + ha + " freeze nfs1 ":       ":0",
		"rack fault " + ha + " nothing ":           ":0",
	} {
		out, code, err := runCmd(t, "", append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)...)
		has := slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool { return l == want || strings.HasSuffix(want, "\t") && strings.HasPrefix(l, want) })
		if code != 0 || err != nil || !has || strings.Contains(out, "servrs") {
			t.Errorf("%q: no %q: %d, %v\n%s", args, want, code, err, out)
		}
	}
}

// A wrong flag or argument gives one line in Mortar's own words.
func TestBadUsage(t *testing.T) {
	for args, want := range map[string]string{
		"simulate --bricks abc x":                  "--bricks abc: want a whole number",
		"simulate --bricks 99999999999999999999 x": "--bricks 99999999999999999999: want a whole number, not so large",
		"simulate --years x y":                     "--years x: want a number",
		"simulate --seed -1 x":                     "--seed -1: want a whole number from 0",
		"simulate --seed":                          "--seed wants a whole number from 0; see mortar simulate --help",
		"status --interval 5 x":                    "--interval 5: want a time with its unit, such as 90s or 2m",
		"status --watch=maybe x":                   "--watch maybe: want true or false",
		"check --jsno x":                           "mortar check has no flag --jsno; did you mean --json?",
		"check --qqqqqq x":                         "mortar check has no flag --qqqqqq; see mortar check --help",
		"check -z x":                               "mortar check has no flag -z; see mortar check --help",
		"check":                                    "mortar check wants SPEC and got nothing; see mortar check --help",
		"check a b":                                `mortar check wants SPEC and got ["a" "b"]; see mortar check --help`,
		"version x":                                `mortar version wants no argument and got ["x"]; see mortar version --help`,
		"init":                                     "mortar init wants FLAVOUR|SYSTEM and got nothing; see mortar init --help",
		"init nss4-ha-28":                          `there is no template for flavour "nss4-ha-28"; did you mean nss4-ha-288?`,
		"init nss7.4":                              `there is no template for flavour "nss7.4"; did you mean nss7.4-ha?`,
		"check nss7.4-ha":                          "nss7.4-ha is an example, and no file here has its name; write it into one with `mortar init nss7.4-ha > brick.yaml`",
		"rack up nss7.4-ha":                        "nss7.4-ha is an example, and no file here has its name; write it into one with `mortar init nss7.4-ha > brick.yaml`",
		"report main_test.go":                      "main_test.go: no run; give the directory a drill or benchmark wrote, e.g. out/demo",
		"--bogus":                                  "mortar has no flag --bogus; see mortar --help",
		"simulate x --set":                         "--set wants a value; see mortar simulate --help",
	} {
		code, out, stderr := mortar(t, strings.Fields(args)...)
		if code != exitBadInput || stderr != want || out != "" {
			t.Errorf("%s: %d, %q, want %q\n%s", args, code, stderr, want, out)
		}
	}
}

// mortar --version is mortar version, and a build without the linker's version has one where the
// go command knows it.
func TestVersion(t *testing.T) {
	_, flag, _ := mortar(t, "--version")
	code, word, _ := mortar(t, "version")
	if code != 0 || flag != word || word != "mortar "+env.Version+"\n" || env.Version == "" {
		t.Errorf("%d, %q, %q, %q", code, flag, word, env.Version)
	}
}

// asProcess runs mortar as a process of its own.
func asProcess(args ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), asMortar+"=1")
	return c
}

// With --json each error is one line of JSON on stderr, also one of a wrong flag.
func TestErrorsAsJSON(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("servrs: []\nid: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, places := range map[string]bool{
		"check --json " + bad:                             true,
		"status " + bad + " --json":                       true,
		"apply " + bad + " --json --yes":                  true,
		"check --json":                                    false,
		"check --jsno --json":                             false,
		"rack up /none --json":                            false,
		"report /none --json":                             false,
		"chekc --json":                                    false,
		"quota set ../../examples/nfs.yaml user a --json": false,
	} {
		c := asProcess(strings.Fields(args)...)
		var out, stderr bytes.Buffer
		c.Stdout, c.Stderr = &out, &stderr
		_ = c.Run()
		var e struct {
			Error    string `json:"error"`
			ExitCode int    `json:"exit_code"`
			Problems []struct {
				File         string
				Line, Column int
				Text         string
			}
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		err := json.Unmarshal([]byte(lines[len(lines)-1]), &e)
		if err != nil || e.Error == "" || e.ExitCode != exitBadInput || c.ProcessState.ExitCode() != exitBadInput || (len(e.Problems) > 0) != places {
			t.Errorf("%s: %v, %+v\n%s%s", args, err, e, &out, &stderr)
		}
		for _, p := range e.Problems {
			if p.File != bad || p.Line < 1 || p.Column < 1 || p.Text == "" {
				t.Errorf("%s: %+v", args, p)
			}
		}
	}
	if out, err := asProcess("check", bad).CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "mortar: "+bad+":") {
		t.Errorf("without --json: %v, %s", err, out)
	}
}

// check - reads a spec from standard input.
func TestCheckStandardInput(t *testing.T) {
	text, _, _ := runCmd(t, "init", "nfs-ha")
	check := func(text string, args ...string) (string, error) {
		c := asProcess(append([]string{"check", "-"}, args...)...)
		c.Stdin = strings.NewReader(text)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := check(text); err != nil || out == "" {
		t.Errorf("%v\n%s", err, out)
	}
	for text, want := range map[string]string{
		strings.Replace(text, "servers:", "servrs:", 1): "mortar: stdin:",
		"":                                  "mortar: stdin:",
		text + strings.Repeat("#\n", 1<<20): "mortar: stdin:1:1: the file has more than",
	} {
		if out, err := check(text); err == nil || !strings.HasPrefix(out, want) {
			t.Errorf("%v, %.200s", err, out)
		}
	}
}

// Ctrl-C ends check, and a second one a command that does not end by itself. A FIFO without data
// stands for a file system that hangs.
func TestInterrupt(t *testing.T) {
	for _, c := range []struct {
		command string
		again   bool
	}{{"check", false}, {"simulate", true}} {
		fifo := filepath.Join(t.TempDir(), "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		p := asProcess(c.command, fifo)
		var stderr bytes.Buffer
		p.Stderr = &stderr
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		w := -1
		for w < 0 { // until the command reads
			w, _ = syscall.Open(fifo, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		again := time.Tick(50 * time.Millisecond)
		for n, running := 0, true; running; {
			if n == 0 || c.again {
				_ = p.Process.Signal(os.Interrupt) // it may have ended
				n++
			}
			select {
			case <-ended:
				running = false
			case <-again:
			}
		}
		_ = syscall.Close(w)
		if code := p.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("%s: exit %d, %s", c.command, code, &stderr)
		}
	}
}

// demo refuses a wrong drill, brick or directory before it makes one.
func TestDemoChecksFirst(t *testing.T) {
	brick := func(text string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "brick.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one, _, _ := runCmd(t, "init", "nfs")
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct{ dir, flags, want string }{
		{none, "--drill server-crsh", `no drill "server-crsh"`},
		{none, "--how frieze", `has no variant "frieze"`},
		{"/dev/null/x", "", "--out: "},
		{brick("servrs: []\n"), "", "servrs"},
		{none, "--drill ssd-both", "cache"},
		{brick(one), "--drill private-switch", "a pair of servers is needed"},
	} {
		code, out, err := mortar(t, append(strings.Fields("demo --out "+c.dir), strings.Fields(c.flags)...)...)
		if code != exitBadInput || out != "" || !strings.Contains(err, c.want) {
			t.Errorf("%s %s: %d, %q, %q", c.dir, c.flags, code, out, err)
		}
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("%s: %v", none, err)
	}
}

// A limit that is missing or wrong is refused before a login: no host of an example exists.
func TestQuotaSetChecksFirst(t *testing.T) {
	for args, want := range map[string]string{
		"user alice":                  "no limit is given; give --space, ",
		"usr alice --space 1TiB":      `"usr" is none of `,
		"project home --space 1TiB":   "projects are named by number",
		"user a;b --space 1TiB":       "is no name and no number",
		"user alice --space 1furlong": "--space: ",
	} {
		code, out, err := mortar(t, strings.Fields("quota set ../../examples/nfs-ha.yaml "+args)...)
		if code != exitBadInput || out != "" || !strings.Contains(err, want) || !strings.HasSuffix(err, "nothing was changed") {
			t.Errorf("%s: %d, %q, %q", args, code, out, err)
		}
	}
}

// A plan for blank hosts has the steps of the limit's hosts only.
func TestOfflineLimit(t *testing.T) {
	code, out, err := mortar(t, "plan", "--offline", "../../examples/nfs-ha.yaml", "--limit", "clients")
	if code != 0 || !strings.HasPrefix(out, "c1\n") || strings.Contains(out, "\nnfs1\n") {
		t.Errorf("%d, %.300q, %q", code, out, err)
	}
	if code, out, err := mortar(t, "plan", "--drift", "../../examples/nfs-ha.yaml", "--limit", "clients"); code != exitBadInput || out != "" {
		t.Errorf("%d, %q, %q", code, out, err)
	}
}

// A limit that names no host is refused before anything else, by one line.
func TestLimitNamesNobody(t *testing.T) {
	for _, c := range []string{"plan", "plan --offline", "status", "apply", "apply --yes", "apply --dry-run"} {
		code, out, err := mortar(t, append(strings.Fields(c), "../../examples/nfs-ha.yaml", "--limit", "nobody")...)
		if code != exitBadInput || out != "" || strings.Count(err, "\n") > 1 {
			t.Errorf("%s: %d, %q, %q", c, code, out, err)
		}
	}
}

// The first argument of a command that works on a brick is SPEC in each usage.
func TestOneWordForTheSpec(t *testing.T) {
	specs := 0
	every(newRootCmd(), func(c *cobra.Command) {
		_, arguments, _ := strings.Cut(c.Use, " ")
		first, _, _ := strings.Cut(arguments, " ")
		if strings.Contains(c.Example, c.CommandPath()+" brick.yaml") {
			if specs++; strings.Trim(first, "[].") != "SPEC" && c.Name() != "compare" {
				t.Errorf("%s: the usage says %q", c.CommandPath(), first)
			}
		}
	})
	if specs < 30 {
		t.Errorf("only %d commands have a spec in their example", specs)
	}
}

// Every visible command has an example.
func TestExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "completion" || c.Name() == "help" {
			return
		}
		if !c.HasSubCommands() && !strings.Contains(c.Example, "  "+c.CommandPath()) {
			t.Errorf("%s has no example of itself", c.CommandPath())
		}
		for _, k := range c.Commands() {
			walk(k)
		}
	}
	walk(newRootCmd())
}

// All output goes through the writer that shows control characters: the output
// of a command, its errors, and JSON, which stays the same.
func TestOutputObeysNothing(t *testing.T) {
	facts := filepath.Join(t.TempDir(), "facts.json")
	planted := "\u202e\u009b31m"
	text, err := json.Marshal(map[string]any{"time": "2026-11-20T12:00:00Z", "hosts": map[string]any{"nfs1": map[string]string{"err": "no route to \x1b]0;owned\x07" + planted}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(facts, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"status", "../../examples/nfs.yaml", "--facts", facts, "--all"},
		{"status", "../../examples/nfs.yaml", "--facts", facts, "--json"},
		{"check", "no\x1b]0;owned\x07" + planted},
	} {
		out, _ := asProcess(args...).CombinedOutput() // with an error of each
		if s := string(out); !strings.Contains(s, `\u001b]0;owned\u0007\u202e\u009b31m`) || strings.ContainsAny(s, "\x1b\x07\u202e\u009b") {
			t.Errorf("%q prints %q", args, s)
		}
		if slices.Contains(args, "--json") && !json.Valid(out) {
			t.Errorf("%q prints no JSON: %s", args, out)
		}
	}
}
