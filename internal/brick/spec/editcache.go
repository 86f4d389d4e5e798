package spec

import (
	"fmt"
	"strings"
)

// SetCache returns the text of a spec with another cache, or without one:
// only the lines of the key cache change.
func SetCache(src []byte, c *Cache) ([]byte, error) {
	lines := strings.SplitAfter(string(src), "\n")
	from, to := -1, -1
	for i, l := range lines {
		if from < 0 {
			if strings.HasPrefix(l, "cache:") {
				from, to = i, i+1
			}
			continue
		}
		switch t := strings.TrimSpace(l); {
		case t == "" || strings.HasPrefix(l, "#"):
			continue // belongs to what follows, unless more of the cache does
		case strings.HasPrefix(l, " ") || strings.HasPrefix(l, "\t") || strings.HasPrefix(l, "-"):
			to = i + 1
			continue
		}
		break
	}
	block := ""
	if c != nil {
		block = cacheText(c)
	}
	if from < 0 {
		if c == nil {
			return src, nil
		}
		text := string(src)
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return []byte(text + "\n" + block), nil
	}
	return []byte(strings.Join(lines[:from], "") + block + strings.Join(lines[to:], "")), nil
}

func cacheText(c *Cache) string {
	var b strings.Builder
	b.WriteString("cache:\n  ssds:\n")
	for _, l := range c.SSDs {
		fmt.Fprintf(&b, "    - {serial: %q", l.Serial)
		if l.WWN != "" {
			fmt.Fprintf(&b, ", wwn: %q", l.WWN)
		}
		fmt.Fprintf(&b, ", size: %s, type: %s", l.Size, l.Type)
		if l.Server != "" {
			fmt.Fprintf(&b, ", server: %s", l.Server)
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "  mode: %s\n  sequential_bypass: %s\n", c.Mode, c.Bypass)
	return b.String()
}

// Single lists each SSD of a cache on its own, ranges resolved.
func (c *Cache) Single() ([]DiskList, error) {
	var out []DiskList
	for _, l := range c.SSDs {
		serials, err := l.Serials()
		if err != nil {
			return nil, err
		}
		for _, s := range serials {
			x := l
			x.Serial = s
			out = append(out, x)
		}
	}
	return out, nil
}
