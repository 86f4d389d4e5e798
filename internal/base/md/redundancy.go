package md

import (
	"slices"
	"strconv"
	"strings"
)

// Near2 is the layout of the RAID 10 arrays that Mortar makes: each block on
// two neighbouring members. Source: mdadm(8), --layout; drivers/md/raid10.c.
const Near2 = 0x102

// CanLose is how many more members an array can lose, whichever they are.
// It is negative if the present members do not hold all data. present has one
// entry for each slot of the array; layout is md's number for it and counts
// for RAID 10 only.
func CanLose(level int, layout uint32, present []bool) int {
	missing := 0
	for _, ok := range present {
		if !ok {
			missing++
		}
	}
	switch level {
	case 1:
		return len(present) - 1 - missing
	case 4, 5:
		return 1 - missing
	case 6:
		return 2 - missing
	case 10:
		return canLose10(layout, present, missing)
	}
	return -missing
}

// canLose10 looks at each mirror by itself where every mirror has members of
// its own. Otherwise copies lie across neighbours, and it counts on the least
// that is safe.
func canLose10(layout uint32, present []bool, missing int) int {
	near, far := int(layout&0xff), int(layout>>8&0xff)
	if far != 1 || near < 2 || len(present)%near != 0 {
		return near*far - 1 - missing
	}
	least := near
	for mirror := range slices.Chunk(present, near) {
		alive := 0
		for _, ok := range mirror {
			if ok {
				alive++
			}
		}
		least = min(least, alive)
	}
	return least - 1
}

// Fewest is the smallest number of members that can hold all data of an array
// of Mortar's: of RAID 10 one of each mirror.
func Fewest(level, members int) int {
	present := make([]bool, members)
	for i := range present {
		present[i] = true
	}
	n := members
	for i := range present {
		present[i] = false
		if CanLose(level, Near2, present) < 0 {
			present[i] = true
			continue
		}
		n--
	}
	return n
}

// Level reads the kernel's name of a RAID level: 6 of "raid6"; -1 for what is
// no RAID level with a number.
func Level(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "raid"))
	if err != nil || !strings.HasPrefix(name, "raid") {
		return -1
	}
	return n
}
