package lists

import (
	"slices"
	"strconv"
	"testing"
)

func TestLists(t *testing.T) {
	even := func(n int) bool { return n%2 == 0 }
	if got := Map([]int{1, 2}, strconv.Itoa); !slices.Equal(got, []string{"1", "2"}) {
		t.Error(got)
	}
	if got := Flat([]int{1, 2}, func(n int) []int { return make([]int, n) }); len(got) != 3 {
		t.Error(got)
	}
	if got := Only([]int{1, 2, 4}, even); !slices.Equal(got, []int{2, 4}) {
		t.Error(got)
	}
	if got := Distinct([]int{2, 1, 2}); !slices.Equal(got, []int{2, 1}) {
		t.Error(got)
	}
	if got, has := First([]int{1, 2, 4}, even); got != 2 || !has {
		t.Error(got, has)
	}
	if got, has := First([]int{1}, even); got != 0 || has {
		t.Error(got, has)
	}
	list := []int{1, 2}
	if got := Find(list, func(n *int) bool { return even(*n) }); got != &list[1] {
		t.Error(got)
	}
	if Find(list[:1], func(n *int) bool { return even(*n) }) != nil || Map[int, int](nil, nil) != nil || Only(list[:1], even) != nil {
		t.Error("not nil")
	}
}
