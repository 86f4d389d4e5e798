package spec

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SetCache returns the text of a spec with another cache, or without one:
// only the lines of the key cache change.
func SetCache(src []byte, c *Cache) []byte {
	if c == nil {
		return setKey(src, "cache")
	}
	return setKey(src, "cache", cacheText(c))
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
	fmt.Fprintf(&b, "  mode: %s\n  sequential_bypass: %s", c.Mode, c.Bypass)
	return b.String()
}

// ChangeCache gives the spec as a change of its cache makes it, with the text in
// Source, and its new cache; nil: none. The rules of the spec say what may not
// be; their lines are those of a spec that is not on disk. s stays as it is. A brick without
// a cache begins with one that has no SSD.
func (s *Spec) ChangeCache(change func(*Cache) (*Cache, error)) (next *Spec, want *Cache, err error) {
	c := Cache{Mode: "write-through", Bypass: MiB} // the defaults of the keys
	if s.Cache != nil {
		c = *s.Cache
	}
	if c.SSDs, err = c.Single(); err == nil {
		want, err = change(&c)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.File, err)
	}
	if next, err = Parse(s.File, SetCache(s.Source, want)); err != nil {
		return nil, nil, fmt.Errorf("with this change, %w", err)
	}
	return next, want, nil
}

// at is the place of an SSD in the cache; negative: it is not in it.
func (c *Cache) at(serial string) int {
	return slices.IndexFunc(c.SSDs, func(l DiskList) bool { return strings.EqualFold(l.Serial, serial) })
}

// AddArgs are the arguments of mortar cache add, behind the spec, that give a brick this cache
// anew; nil if it takes several commands.
func (c *Cache) AddArgs() []string {
	ssds, err := c.Single()
	if err != nil || len(ssds) == 0 {
		return nil // Parse has refused it
	}
	l := ssds[0]
	var args []string
	for _, x := range ssds {
		if x.Size != l.Size || x.Server != l.Server || x.Type != l.Type {
			return nil
		}
		args = append(args, x.Serial)
	}
	args = append(args, "--size", l.Size.String(), "--type", l.Type, "--mode", c.Mode)
	if l.Server != "" {
		args = append(args, "--server", l.Server)
	}
	return args
}

// Add adds SSDs like one; each is listed on its own (see Single).
func (c *Cache) Add(like DiskList, serials ...string) error {
	for _, serial := range serials {
		if c.at(serial) >= 0 {
			return fmt.Errorf("SSD %s is in the cache already", serial)
		}
		like.Serial = serial
		c.SSDs = append(c.SSDs, like)
	}
	return nil
}

// Remove takes SSDs away, of which one at least must stay; each is listed on its
// own (see Single).
func (c *Cache) Remove(serials ...string) error {
	for _, serial := range serials {
		i := c.at(serial)
		if i < 0 {
			return fmt.Errorf("SSD %s is not in the cache", serial)
		}
		c.SSDs = slices.Delete(c.SSDs, i, i+1)
	}
	if len(c.SSDs) == 0 {
		return errors.New("no SSD would be left: use mortar cache off")
	}
	return nil
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
