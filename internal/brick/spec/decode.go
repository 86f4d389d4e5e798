package spec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile bounds a spec; the largest real one is some tens of kilobytes.
const maxFile = 1 << 19

// maxDepth bounds the nesting of [ and { and of lists on one line.
const maxDepth = 32

// maxErrors is how many are told at once: after so many it is not a spec.
const maxErrors = 50

// Load reads and parses the file at path.
func Load(path string) (*Spec, error) {
	src, err := ReadFile(path)
	switch {
	case err == nil:
		return Parse(path, src)
	case path == "":
		return nil, errors.New("the name of the spec is empty; name the brick's file")
	case path == "-":
		return nil, errors.New("a spec is read from a file, not from standard input; write it into a file and name that")
	case errors.Is(err, syscall.EISDIR):
		return nil, fmt.Errorf("%s is a directory; name the spec in it, e.g. %s", path, filepath.Join(path, "brick.yaml"))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; write a spec with `mortar init nfs-ha > %s`", err, path)
	}
	return nil, err
}

// ReadFile reads a file that a person wrote, as far as such a file may go: a
// disk or an endless device named by mistake does not fill the memory.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// Parse reads a spec, fills in every default and checks every rule that can
// be checked by looking at the file alone. Its errors are an Errors; file is
// the name they carry.
func Parse(file string, src []byte) (*Spec, error) {
	s, err := read(file, src)
	if err != nil {
		// Rules are not checked on a file that could not be understood: what
		// follows from a typing error would only hide it.
		return nil, err
	}
	if errs := validate(s); len(errs) > 0 {
		return nil, errs.sorted()
	}
	return s, nil
}

// read is Parse without the rules.
func read(file string, src []byte) (*Spec, error) {
	s := &Spec{File: file, Source: src}
	pos, err := decode(file, "spec", "mortar init nfs-ha", src, s)
	if err != nil {
		return nil, err
	}
	s.pos = pos
	return s, nil
}

// Decode reads another kind of file by the same rules as a spec: into v, a
// pointer to a struct whose fields carry yaml, doc and default tags. noun is
// what the file is called in messages, sample the command that prints one.
// Its errors are an Errors; pos says where a value stands, as Spec.Pos does.
func Decode(file, noun, sample string, src []byte, v any) (pos func(path string) (line, col int), err error) {
	p, err := decode(file, noun, sample, src, v)
	if err != nil {
		return nil, err
	}
	return p.of, nil
}

func decode(file, noun, sample string, src []byte, v any) (positions, error) {
	d := &decoder{file: file, noun: noun, sample: sample, root: reflect.TypeOf(v).Elem(), pos: positions{"": {1, 1}}}
	if len(src) > maxFile {
		return nil, Errors{{File: file, Line: 1, Col: 1, Msg: fmt.Sprintf("the file has more than the %d bytes a %s may have", maxFile, noun), Mend: "name the " + noun + ", not a disk image or log"}}
	}
	root, err := d.parse(src)
	if err != nil {
		return nil, Errors{err}
	}
	d.value(root, reflect.ValueOf(v).Elem(), "", "")
	if len(d.errs) > 0 {
		return d.pos, d.errs.sorted()
	}
	return d.pos, nil
}

// Pos says where in the file the value at a path stands, e.g.
// "servers[0].bmc.address"; for one that was left out, where its parent does.
func (s *Spec) Pos(path string) (line, col int) { return s.pos.of(path) }

// positions has where in a file the value at a path stands.
type positions map[string]position

func (ps positions) of(path string) (line, col int) {
	for {
		if p, ok := ps[path]; ok {
			return p.line, p.col
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return 1, 1
		}
		path = path[:i]
	}
}

// Given says whether the file has a value at path (not a default).
func (s *Spec) Given(path string) bool { _, ok := s.pos[path]; return ok }

type position struct{ line, col int }

type decoder struct {
	file   string
	noun   string // what the file is called
	sample string // the command that prints one
	root   reflect.Type
	pos    positions
	errs   Errors
}

func (d *decoder) errorf(n ast.Node, mend, format string, args ...any) {
	p := nodePos(n)
	d.errs = append(d.errs, &Error{File: d.file, Line: p.line, Col: p.col, Msg: fmt.Sprintf(format, shortened(args)...), Mend: mend})
}

// parse turns text into the one mapping a spec consists of.
func (d *decoder) parse(src []byte) (ast.Node, *Error) {
	fail := func(p position, msg, mend string) (ast.Node, *Error) {
		return nil, &Error{File: d.file, Line: p.line, Col: p.col, Msg: msg, Mend: mend}
	}
	if msg, mend := foreign(src); msg != "" {
		return fail(position{1, 1}, msg, mend)
	}
	// A byte order mark, as some editors write it, means nothing. The lexer counts a comment's \r\n twice.
	tokens := lexer.Tokenize(strings.ReplaceAll(strings.TrimPrefix(string(src), "\ufeff"), "\r\n", "\n"))
	depth, line, dashes := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceEntryType:
			if t.Position != nil && t.Position.Line != line {
				line, dashes = t.Position.Line, 0
			}
			if dashes++; dashes > maxDepth {
				return fail(tokenPos(t), fmt.Sprintf("lists are nested more than %d deep", maxDepth), "begin an item with one dash")
			}
		case token.SequenceStartType, token.MappingStartType:
			// The parser's time and memory grow with the square of the depth.
			if depth++; depth > maxDepth {
				return fail(tokenPos(t), fmt.Sprintf("brackets are nested more than %d deep", maxDepth), "close them; a "+d.noun+" needs three")
			}
		case token.SequenceEndType, token.MappingEndType:
			depth--
		}
	}
	f, err := parser.Parse(tokens, 0)
	if err != nil {
		// A quote that is not closed ends at the next one, lines further down.
		for _, t := range tokens {
			if quoted := t.Type == token.DoubleQuoteType || t.Type == token.SingleQuoteType; quoted && strings.Contains(strings.TrimSpace(t.Origin), "\n") {
				return fail(tokenPos(t), "the quote that opens here is not closed on its line", "close it")
			}
		}
		var se *yaml.SyntaxError
		if errors.As(err, &se) && se.GetToken() != nil {
			p, msg := tokenPos(se.GetToken()), se.GetMessage()
			switch {
			case strings.Contains(msg, "'\t'"):
				return fail(p, "a tab stands where YAML takes spaces only", "indent with spaces")
			case strings.Contains(msg, "could not find end character"):
				return fail(p, "the quote that opens here is not closed", "close it")
			case strings.Contains(msg, "already defined"):
				if m := re().defined.FindStringSubmatch(msg); m != nil {
					msg = fmt.Sprintf("key %q is there already at line %s", m[1], m[2])
				}
				return fail(p, msg, "remove one of them")
			}
			return fail(p, "not valid YAML: "+msg, "compare with the output of `"+d.sample+"`")
		}
		return fail(position{1, 1}, "not valid YAML: "+firstLine(err.Error()), "compare with the output of `"+d.sample+"`")
	}
	var docs []ast.Node
	for _, doc := range f.Docs {
		if doc != nil && doc.Body != nil && doc.Body.Type() != ast.CommentType && doc.Body.Type() != ast.NullType {
			docs = append(docs, doc.Body)
		}
	}
	switch len(docs) {
	case 0:
		return fail(position{1, 1}, "the file is empty", "write a "+d.noun+" with `"+d.sample+"`")
	case 1:
		return docs[0], nil
	}
	return fail(nodePos(docs[1]), "a second YAML document starts here", "one file holds one "+d.noun+": put the second into its own file")
}

// foreign says why a file is no YAML that Mortar reads, and how to mend it; or "".
func foreign(src []byte) (msg, mend string) {
	switch head := src[:min(len(src), 4)]; {
	case bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")) || bytes.IndexByte(head, 0) >= 0:
		return "the file is UTF-16, or no text", "save it as UTF-8, e.g. with `iconv -f UTF-16 -t UTF-8`"
	case bytes.HasPrefix(src, []byte("%")):
		return fmt.Sprintf("%q is a directive of YAML, which Mortar does not use", shorten(firstLine(string(src)))), "remove the line, and the line --- below it"
	}
	return "", ""
}

var bytesType = reflect.TypeOf(Bytes(0))

// value decodes node n into v. path is the value's place in the spec, def the
// default tag (used only where the key is absent).
func (d *decoder) value(n ast.Node, v reflect.Value, path, key string) {
	for n != nil { // wrappers of no meaning, or of one that a spec does not need
		switch w := n.(type) {
		case *ast.TagNode:
			d.errorf(n, "remove the tag", "YAML tag %q is not used in a %s", w.Start.Value, d.noun)
			return
		case *ast.AnchorNode, *ast.AliasNode:
			d.errorf(n, "write the value out", "YAML anchors and aliases are not used in a %s", d.noun)
			return
		case *ast.MappingKeyNode:
			n = w.Value
			continue
		}
		break
	}
	if path != "" {
		d.pos[path] = nodePos(n)
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Type() == bytesType:
		if text, ok := d.scalar(n, v, key); ok {
			b, err := ParseBytes(text)
			if err != nil {
				what, mend, _ := strings.Cut(err.Error(), "; ")
				d.errorf(n, mend, "%s: %s", key, what)
				return
			}
			v.SetInt(int64(b))
		}
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, path, key)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path, key)
	case v.Kind() == reflect.Map:
		d.words(n, v, path, key)
	case v.Kind() == reflect.String:
		if text, ok := d.scalar(n, v, key); ok {
			v.SetString(text)
		}
	case v.Kind() == reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			d.errorf(n, "write "+key+": true, or remove the line", "%s must be true or false, not %s", key, kindOf(n))
			return
		}
		v.SetBool(b.Value)
	case v.Kind() == reflect.Int:
		text, ok := d.scalar(n, v, key)
		if !ok {
			return
		}
		if digits := strings.TrimLeft(text, "0"); digits != text && text != "0" && re().digits.MatchString(text) {
			d.errorf(n, "write "+key+": "+cmp.Or(digits, "0"), "%s: %s begins with a zero: YAML 1.1 and C read such a number as octal", key, text)
			return
		}
		i, err := strconv.ParseInt(text, 10, 64)
		if errors.Is(err, strconv.ErrRange) || err == nil && (i > 1<<31-1 || i < -(1<<31)) {
			size, mend := "large", "smaller"
			if i < 0 { // ParseInt gives the nearest number it can
				size, mend = "small", "larger"
			}
			d.errorf(n, "write a "+mend+" number, e.g. "+key+": 8", "%s: %s is too %s", key, text, size)
			return
		}
		if err != nil {
			d.errorf(n, "write digits only, e.g. "+key+": 8", "%s must be a whole number, not %q", key, text)
			return
		}
		v.SetInt(i)
	default:
		panic("spec: no decoder for " + v.Type().String()) // a field of a new type was added without one
	}
}

// scalar returns the text of a single value.
func (d *decoder) scalar(n ast.Node, v reflect.Value, key string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		if first, _ := utf8.DecodeRuneInString(n.Value); d.noun == "spec" && strings.ContainsRune("“”„‘’‚«»", first) {
			d.errorf(n, `write " or '`, "%s begins with the typographic quote %c, which YAML takes for a letter", key, first)
			return "", false
		}
		return n.Value, true
	case *ast.LiteralNode:
		return strings.TrimRight(n.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value, true // as written: a serial number 0042 keeps its zeros
	case *ast.NullNode, nil:
		d.errorf(n, "write a value after the colon, or remove the line", "%s has no value", key)
		return "", false
	case *ast.BoolNode:
		if v.Type() == reflect.TypeFor[Switch]() {
			d.errorf(n, fmt.Sprintf("write %s: %s", key, map[bool]string{true: "on", false: "off"}[n.Value]), "%s is on or off, not true or false", key)
			return "", false
		}
		if v.Kind() == reflect.String {
			d.errorf(n, "put it in quotes if it is meant as text", "%s must be %s, not true or false", key, describe(v))
			return "", false
		}
	}
	d.errorf(n, "write one value", "%s must be %s, not %s", key, describe(v), kindOf(n))
	return "", false
}

// words reads a mapping of the user's own keys to text.
func (d *decoder) words(n ast.Node, v reflect.Value, path, key string) {
	pairs, ok := pairsOf(n)
	if !ok {
		d.errorf(n, "write e.g. "+key+": {name: value}", "%s must be a mapping (name: value), not %s", key, kindOf(n))
	}
	out := map[string]string{}
	for _, p := range pairs {
		name, ok := keyName(p.Key)
		if !ok {
			d.errorf(p.Key, "", "a key must be a plain word")
			continue
		}
		text := reflect.New(reflect.TypeFor[string]()).Elem()
		d.value(p.Value, text, join(path, name), name)
		out[name] = text.String()
	}
	v.Set(reflect.ValueOf(out))
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path, key string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if _, null := n.(*ast.NullNode); null {
			return // "wipe:" with nothing below it is an empty list
		}
		mend := "write each item on its own line, beginning with '- '"
		if v.Type().Elem().Kind() == reflect.String {
			mend = "write it as a list: " + key + ": [a, b]"
		}
		d.errorf(n, mend, "%s must be a list, not %s", key, kindOf(n))
		return
	}
	item := strings.TrimSuffix(key, "s")
	for i, e := range seq.Values {
		if len(d.errs) >= maxErrors {
			return
		}
		ev := reflect.New(v.Type().Elem()).Elem()
		d.value(e, ev, fmt.Sprintf("%s[%d]", path, i), item)
		v.Set(reflect.Append(v, ev))
	}
}

// removedKeys are keys of earlier versions, each with its mapping: why it is refused, and
// what to do.
var removedKeys = map[string][2]string{
	"storage.journal": {
		"this version has no write journal: starts have hung while they replayed one, and the comparison of both parities finds torn stripes without it",
		"remove the key if the brick was built without a journal, or is new. If it was built with one, take that off first: docs/operations.md, A write journal of an earlier version",
	},
}

// pairsOf lists the keys and values of a mapping; ok is false for any other node.
func pairsOf(n ast.Node) (pairs []*ast.MappingValueNode, ok bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path, key string) {
	pairs, ok := pairsOf(n)
	if _, null := n.(*ast.NullNode); !ok && !null {
		what := key
		if what == "" {
			what = "a " + d.noun
		}
		d.errorf(n, "its keys are: "+strings.Join(keysOf(v.Type()), ", "), "%s must be a mapping (key: value lines), not %s", what, kindOf(n))
		return
	}
	seen, meant := map[string]bool{}, map[string]bool{}
	for _, p := range pairs {
		if len(d.errs) >= maxErrors {
			return
		}
		name, ok := keyName(p.Key)
		if !ok {
			d.errorf(p.Key, "", "a key must be a plain word")
			continue
		}
		field, ok := fieldOf(v.Type(), name)
		if why, gone := removedKeys[key+"."+name]; !ok && gone {
			d.errorf(p.Key, why[1], "%s", why[0])
			continue
		}
		if !ok {
			keys := keysOf(v.Type())
			mend := "the keys here are: " + strings.Join(keys, ", ")
			if near := Nearest(name, keys); near != "" {
				mend = fmt.Sprintf("did you mean %q?", near)
				meant[near] = true
			} else if places := placesOf(d.root, name, ""); len(places) > 0 && len(places) <= 3 {
				mend = fmt.Sprintf("%q belongs to %s: look at the indentation", name, oneOf(places))
			}
			d.errorf(p.Key, mend, "unknown key %q%s", name, inKey(key))
			continue
		}
		if seen[name] { // the YAML parser refuses this; kept for keys it sees as different, as "a" and 'a'
			d.errorf(p.Key, "remove one", "key %q is there twice", name)
			continue
		}
		seen[name] = true
		d.value(p.Value, v.FieldByIndex(field.Index), join(path, name), name)
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" || seen[name] {
			continue
		}
		if meant[name] {
			continue // said already
		}
		if opts != "omitempty" {
			p := nodePos(n)
			d.errs = append(d.errs, &Error{File: d.file, Line: p.line, Col: p.col,
				Msg: fmt.Sprintf("key %q is missing%s", name, inKey(key)), Mend: fmt.Sprintf("add it: %s", f.Tag.Get("doc"))})
			continue
		}
		setDefault(v.Field(i), f)
	}
}

// setDefault fills an absent optional field from its default tag, and the
// fields below it.
func setDefault(v reflect.Value, f reflect.StructField) {
	def, ok := f.Tag.Lookup("default")
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if sf := v.Type().Field(i); sf.IsExported() {
				setDefault(v.Field(i), sf)
			}
		}
	case !ok || strings.Contains(def, "<"): // <name>: filled in by validate
	case v.Type() == bytesType:
		b, err := ParseBytes(def)
		if err != nil {
			panic("spec: default of " + f.Name + ": " + err.Error())
		}
		v.SetInt(int64(b))
	case v.Kind() == reflect.String:
		v.SetString(def)
	case v.Kind() == reflect.Int:
		i, err := strconv.Atoi(def)
		if err != nil {
			panic("spec: default of " + f.Name + ": " + err.Error())
		}
		v.SetInt(int64(i))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		v.Set(reflect.ValueOf(strings.Split(def, ", ")))
	default:
		panic("spec: no default for type " + v.Type().String())
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func inKey(key string) string {
	if key == "" {
		return ""
	}
	return " in " + key
}

func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() && name == key && name != "-" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keysOf(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() && name != "-" && name != "" {
			out = append(out, name)
		}
	}
	return out
}

// placesOf lists where in the file a key of this name is known.
func placesOf(t reflect.Type, name, at string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || key == "-" {
			continue
		}
		if key == name {
			out = append(out, map[bool]string{true: "the top level", false: at}[at == ""])
		}
		sub := f.Type
		for sub.Kind() == reflect.Pointer || sub.Kind() == reflect.Slice {
			sub = sub.Elem()
		}
		if sub.Kind() == reflect.Struct {
			out = append(out, placesOf(sub, name, join(at, key))...)
		}
	}
	return out
}

func keyName(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.MappingKeyNode:
		if s, ok := k.Value.(*ast.StringNode); ok {
			return s.Value, true
		}
		return "", false
	case *ast.MergeKeyNode:
		return "<<", true
	case nil:
		return "", false
	}
	if t := k.GetToken(); t != nil {
		return t.Value, true
	}
	return "", false
}

func describe(v reflect.Value) string {
	switch {
	case v.Type() == bytesType:
		return "a size with a unit, e.g. 4TB or 1280MiB"
	case v.Kind() == reflect.Int:
		return "a whole number"
	}
	return "text"
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode, nil:
		return "nothing"
	case *ast.BoolNode:
		return "true or false"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	}
	return "text"
}

func nodePos(n ast.Node) position {
	switch m := n.(type) {
	case nil:
		return position{1, 1}
	case *ast.MappingNode:
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return nodePos(m.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return nodePos(m.Key)
	case *ast.SequenceNode:
		if m.Start != nil {
			return tokenPos(m.Start)
		}
	}
	return tokenPos(n.GetToken())
}

func tokenPos(t *token.Token) position {
	if t == nil || t.Position == nil {
		return position{1, 1}
	}
	return position{max(1, t.Position.Line), max(1, t.Position.Column)}
}

func firstLine(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }
