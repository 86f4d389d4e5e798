package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// JSON decodes the JSON object or array of a tool's output into v, which points to a struct
// or a slice. Text before it (a banner, warnings, a byte order mark) and behind it does not
// matter. A value of another type than v has for it costs that value: it is left out of
// v and is one of unread, with its path. A number in quotes is a number.
func JSON(text string, v any) (unread Unread, err error) {
	open := "{"
	if reflect.TypeOf(v).Elem().Kind() == reflect.Slice {
		open = "["
	}
	raw, err := first(text, open)
	if err != nil {
		return nil, err
	}
	fitted, ok := fit(raw, reflect.TypeOf(v).Elem(), "", &unread)
	if !ok {
		return unread, fmt.Errorf("JSON of another form than expected: %s", unread)
	}
	b, err := json.Marshal(fitted)
	if err != nil {
		return unread, err
	}
	return unread, json.Unmarshal(b, v)
}

// first decodes the first JSON value that begins with open. It begins at the first such
// bracket of a line. A bracket of a banner is none: what follows it in its line is no JSON.
func first(text, open string) (any, error) {
	at := 0
	for line := range strings.Lines(text) {
		i := strings.Index(line, open)
		begin, end := at+i, at+len(line)
		at = end
		if i < 0 {
			continue
		}
		d := json.NewDecoder(strings.NewReader(text[begin:]))
		d.UseNumber()
		var out any
		err := d.Decode(&out)
		if err == nil {
			return out, nil
		}
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) && begin+int(syntax.Offset) <= end {
			continue
		}
		return nil, err
	}
	return nil, fmt.Errorf("no JSON: %.80q", strings.TrimSpace(text))
}

// fit returns the part of a decoded value that has the form of type t. ok is false if
// nothing of it has; then unread has the value.
func fit(value any, t reflect.Type, path string, unread *Unread) (fitted any, ok bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage]() {
		return value, true
	}
	switch x := value.(type) {
	case map[string]any:
		if t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
			break
		}
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			inner := x[name]
			to, wanted := t, true
			if t.Kind() == reflect.Map {
				to = t.Elem()
			} else if to, wanted = field(t, name); !wanted {
				continue
			}
			if f, ok := fit(inner, to, strings.TrimPrefix(path+"."+name, "."), unread); ok {
				out[name] = f
			}
		}
		return out, true
	case []any:
		if t.Kind() != reflect.Slice {
			break
		}
		out := []any{}
		for i, inner := range x {
			if f, ok := fit(inner, t.Elem(), fmt.Sprintf("%s[%d]", path, i), unread); ok && f != nil {
				out = append(out, f)
			}
		}
		return out, true
	case bool:
		if t.Kind() == reflect.Bool {
			return x, true
		}
	case string:
		if t.Kind() == reflect.String {
			return x, true
		}
		if n, ok := number(strings.TrimSpace(x), t.Kind()); ok {
			return n, true
		}
	case json.Number:
		if t.Kind() == reflect.String {
			return x.String(), true
		}
		if n, ok := number(x.String(), t.Kind()); ok {
			return n, true
		}
	}
	return odd(value, path, unread)
}

func odd(value any, path string, unread *Unread) (any, bool) {
	b, err := json.Marshal(value)
	if err != nil {
		b = fmt.Append(nil, value)
	}
	unread.Add(path + ": " + string(b))
	return nil, false
}

// number reads a number for an integer or a float. An integer that int64 does not hold
// is the greatest one; counters of 128 bits are such.
func number(s string, k reflect.Kind) (any, bool) {
	f, err := strconv.ParseFloat(s, 64)
	switch k {
	case reflect.Float64:
		return f, err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
	case reflect.Int, reflect.Int64:
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, true
		}
		if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) {
			return nil, false
		}
		switch {
		case f >= math.MaxInt64:
			return int64(math.MaxInt64), true
		case f <= math.MinInt64:
			return int64(math.MinInt64), true
		}
		return int64(f), true
	}
	return nil, false
}

// field is the type of the field that encoding/json would decode a name into.
func field(t reflect.Type, name string) (reflect.Type, bool) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag != "" && tag != "-" && strings.EqualFold(tag, name) {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

// Body is what follows a byte order mark and the text before the first begin of mark:
// an answer without what a shell or a tool has printed before it.
func Body(text, mark string) string {
	if i := strings.Index(text, mark); i >= 0 {
		return text[i:]
	}
	return strings.TrimPrefix(text, "\ufeff")
}
