package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/mortarhpc/mortar/internal/prove/bench"
	"github.com/mortarhpc/mortar/internal/prove/drill"
)

const repository = "../.."

// page is a parsed Markdown file of the repository.
type page struct {
	file    string // relative to the root of the repository
	prose   string // text without code
	blocks  []string
	inline  []string          // `code` within the text
	outputs map[string]string // the block after <!-- output of: COMMAND -->, by command
}

// past tells a page that describes earlier builds: its commands and specs may be of those.
func (p page) past() bool {
	return p.file == "CHANGELOG.md" || strings.HasPrefix(p.file, "lab/")
}

// pages reads every Markdown file of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var found []page
	err := filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && path != repository && (strings.HasPrefix(e.Name(), ".") || e.Name() == "out" || e.Name() == "testdata") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p := parsePage(string(text))
		p.file, err = filepath.Rel(repository, path)
		found = append(found, p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d pages found", len(found))
	}
	return found
}

var inlineCode = regexp.MustCompile("`[^`\n]+`")

// parsePage separates code blocks, fenced or indented, from text.
func parsePage(text string) page {
	var p page
	var prose, block []string
	fence, blank := "", true
	outputOf := ""
	p.outputs = map[string]string{}
	end := func() {
		if block != nil {
			p.blocks = append(p.blocks, strings.TrimSpace(strings.Join(block, "\n")))
			if outputOf != "" {
				p.outputs[outputOf] = strings.Join(block, "\n")
			}
			block, outputOf = nil, ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if trimmed == fence {
				fence = ""
				end()
				continue
			}
			block = append(block, line)
		case strings.HasPrefix(trimmed, "```"):
			end()
			fence, block = "```", []string{}
		case strings.HasPrefix(line, "    ") && (blank || block != nil):
			block = append(block, line[4:])
		case trimmed == "" && block != nil:
			block = append(block, "")
		default:
			end()
			prose = append(prose, line)
			if command, ok := strings.CutPrefix(trimmed, "<!-- output of: mortar "); ok {
				outputOf = strings.TrimSuffix(command, " -->")
			}
		}
		blank = trimmed == ""
	}
	end()
	joined := strings.Join(prose, "\n")
	for _, code := range inlineCode.FindAllString(joined, -1) {
		p.inline = append(p.inline, strings.Trim(code, "`"))
	}
	p.prose = inlineCode.ReplaceAllString(joined, "")
	return p
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)|(?:src|srcset|href)="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the names that a forge gives to a page's headings.
func anchors(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linked.ReplaceAllString(h[1], "$1"))))
	}
	return names
}

// Every link within the repository leads to an existing file and heading.
func TestDocsLinks(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			to := m[1] + m[2]
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			count++
			path, anchor, _ := strings.Cut(to, "#")
			file := filepath.Join(repository, p.file)
			if path != "" {
				file = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: there is no such file", p.file, to)
			} else if anchor != "" && filepath.Ext(file) == ".md" && !slices.Contains(anchors(t, file), anchor) {
				t.Errorf("%s: link to %s: no heading of that page has this name", p.file, to)
			}
		}
	}
	if count < 50 {
		t.Errorf("only %d links found", count)
	}
}

var (
	shellEnd = regexp.MustCompile(`\s(?:#|&&|\|\||[|;>])\s.*$|\s#.*$`)
	shellAnd = regexp.MustCompile(`\s(?:&&|\|\||[|;])\s`)
)

// mortar accepts every mortar command of a code block: command, flags, number of arguments,
// names of drills and examples.
func TestDocsCommands(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		if p.past() {
			continue
		}
		for _, block := range p.blocks {
			for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
				for _, part := range shellAnd.Split(strings.TrimSpace(line), -1) {
					part = strings.TrimPrefix(strings.TrimPrefix(part, "$ "), "# ")
					if args, ok := strings.CutPrefix(part, "mortar "); ok {
						count++
						checkCommandLine(t, p.file, strings.Fields(shellEnd.ReplaceAllString(args, "")))
					}
				}
			}
		}
	}
	if count < 30 {
		t.Errorf("only %d command lines found", count)
	}
}

// spelledNow returns the present spelling of a command. Results have the one by which they were
// measured.
func spelledNow(file string, words []string) []string {
	if strings.HasPrefix(file, "docs/results/") && len(words) > 0 && words[0] == "drill" {
		if now := formerDrill(words[1:]); now != nil {
			return append([]string{"drill"}, now...)
		}
	}
	return words
}

// checkCommandLine validates a command line as cobra does before it runs a command.
func checkCommandLine(t *testing.T, file string, args []string) {
	t.Helper()
	said := "mortar " + strings.Join(args, " ")
	args = spelledNow(file, args)
	root := newRootCmd()
	if err := unknownCommand(root, args); err != nil {
		t.Errorf("%s: %s: %v", file, said, err)
		return
	}
	cmd, rest, err := root.Find(args)
	if err != nil {
		t.Errorf("%s: %s: %v", file, said, err)
		return
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		t.Errorf("%s: %s: %v", file, said, err)
		return
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return
	}
	words := cmd.Flags().Args()
	if err := cmd.ValidateArgs(words); err != nil {
		t.Errorf("%s: %s: %v", file, said, err)
	}
	switch {
	case cmd.Name() == "init" && !slices.Contains(exampleNames(), words[0]):
		t.Errorf("%s: %s: there is no such example", file, said)
	case cmd.CommandPath() == "mortar drill run" && words[1] != "NAME" && !slices.ContainsFunc(drill.Table, func(d drill.Drill) bool { return d.Name == words[1] }):
		t.Errorf("%s: %s: there is no such drill", file, said)
	}
}

// Commands named in the text exist, and their flags too.
func TestDocsInlineCommands(t *testing.T) {
	for _, p := range pages(t) {
		if p.past() {
			continue
		}
		for _, code := range p.inline {
			if args, ok := strings.CutPrefix(code, "mortar "); ok {
				checkMention(t, p.file, strings.Fields(shellEnd.ReplaceAllString(args, "")))
			}
		}
	}
}

// checkMention looks up a command that may contain placeholders, and alternatives such as
// up|down.
func checkMention(t *testing.T, file string, words []string) {
	t.Helper()
	words = spelledNow(file, words)
	groups := []*cobra.Command{newRootCmd()}
	for len(words) > 0 && groups[0].HasSubCommands() && regexp.MustCompile(`^[a-z|-]+$`).MatchString(words[0]) && words[0][0] != '-' {
		var next []*cobra.Command
		for name := range strings.SplitSeq(words[0], "|") {
			i := slices.IndexFunc(groups[0].Commands(), func(c *cobra.Command) bool { return c.Name() == name })
			if i < 0 {
				t.Errorf("%s: `mortar %s`: %s has no command %s", file, strings.Join(words, " "), groups[0].CommandPath(), name)
				return
			}
			next = append(next, groups[0].Commands()[i])
		}
		groups, words = next, words[1:]
	}
	for _, c := range groups {
		c.InitDefaultHelpFlag()
		for _, w := range words {
			if w == "--" {
				break
			}
			name, isFlag := strings.CutPrefix(strings.Trim(w, "[]"), "--")
			name, _, _ = strings.Cut(name, "=")
			if isFlag && c.Flags().Lookup(name) == nil && c.InheritedFlags().Lookup(name) == nil {
				t.Errorf("%s: %s has no flag --%s", file, c.CommandPath(), name)
			}
		}
	}
}

// check accepts every block that is a whole spec, and bench every block that is a whole suite.
func TestDocsSpecs(t *testing.T) {
	for _, p := range pages(t) {
		if p.past() {
			continue
		}
		for _, block := range p.blocks {
			if !strings.Contains("\n"+block, "\napiVersion:") {
				continue
			}
			if strings.Contains("\n"+block, "\nkind: suite") {
				if _, err := bench.Parse(p.file, []byte(block)); err != nil {
					t.Errorf("%s: bench refuses the suite of this page: %v", p.file, err)
				}
				continue
			}
			file := filepath.Join(t.TempDir(), "brick.yaml")
			if err := os.WriteFile(file, []byte(block+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			if code, _, stderr := mortar(t, "check", file); code != 0 {
				t.Errorf("%s: check refuses the spec of this page: %s", p.file, stderr)
			}
		}
	}
}

// A block after <!-- output of: mortar COMMAND EXAMPLE --> shows lines of that command's
// output for the example, in order. A line … stands for omitted lines.
func TestDocsOutputs(t *testing.T) {
	count := 0
	for _, p := range pages(t) {
		for command, block := range p.outputs {
			count++
			words := strings.Fields(command)
			_, text, _ := mortar(t, "init", words[1])
			words[1] = filepath.Join(t.TempDir(), "brick.yaml")
			if err := os.WriteFile(words[1], []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			code, out, stderr := mortar(t, words...)
			if code != 0 {
				t.Fatalf("%s: mortar %s: %d, %s", p.file, command, code, stderr)
			}
			for line := range strings.Lines(block) {
				if line = strings.TrimRight(line, "\n"); line == "…" || line == "" || strings.HasPrefix(line, "$ mortar ") {
					continue
				}
				_, rest, ok := strings.Cut("\n"+out, "\n"+line+"\n")
				if !ok {
					t.Errorf("%s: mortar %s does not print this line, or not here: %s", p.file, command, line)
					continue
				}
				out = rest
			}
		}
	}
	if count < 3 {
		t.Errorf("only %d blocks of output found", count)
	}
}
