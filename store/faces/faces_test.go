package faces

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// groups is what a store would say of push groups.
type groups struct{ has, known map[string]bool }

func (g *groups) state(group string) (has, known bool) { return g.has[group], g.known[group] }

const many = 100

func table() (*Table, *groups) {
	g := &groups{map[string]bool{}, map[string]bool{}}
	return New(g.state), g
}

func TestANameHasOneFace(t *testing.T) {
	x, st := table()
	var taken *TakenError
	pull := func(name, by string) {
		t.Helper()
		_, err := x.Pull(name, many)
		if (err == nil) != (by == "") || err != nil && (!errors.As(err, &taken) || taken.Group != by) {
			t.Errorf("Pull(%s) = %v, want it taken by %q", name, err, by)
		}
	}
	hold := func(group, by string) {
		t.Helper()
		err := x.Hold(group, many)
		if (err == nil) != (by == "") || err != nil && !strings.Contains(err.Error(), by) {
			t.Errorf("Hold(%s) = %v, want it taken by %q", group, err, by)
		}
	}
	owner := func(name, want string) {
		t.Helper()
		if got, ok := x.PushGroup(name); got != want || ok != (want != "") {
			t.Errorf("PushGroup(%s) = %q, %v, want %q", name, got, ok, want)
		}
	}
	pull("live", "")
	pull("live", "")
	hold("live", "pull group")
	owner("live", "")

	// The name that a push group has on the pull side is taken, too, and the other way round.
	hold("X.a", "")
	owner("X%2Ea", "X.a")
	pull("X%2Ea", "X.a")
	hold("X%2Ea", "X.a")
	pull("Y%2Ea", "")
	hold("Y.a", "pull group")

	// Held twice, released twice; what the state has keeps the name after that.
	hold("X.a", "")
	x.Release("X.a")
	pull("X%2Ea", "X.a")
	st.has["X.a"], st.known["X.a"] = true, true
	x.Release("X.a")
	pull("X%2Ea", "X.a")
	st.has["X.a"] = false
	owner("X%2Ea", "")
	hold("X%2Ea", "") // of another push group
	hold("X.a", "X%2Ea")
	x.Release("X%2Ea")
	pull("X%2Ea", "")
	hold("X.a", "pull group")

	// A hold without consequences leaves nothing.
	n := x.Len()
	hold("gone", "")
	x.Release("gone")
	x.Release("gone")
	if x.Len() != n {
		t.Errorf("%d names, want %d", x.Len(), n)
	}
	pull("gone", "")
}

func TestNamesAreBounded(t *testing.T) {
	x, st := table()
	for i := range 2 {
		if fresh, err := x.Pull(fmt.Sprint("p", i), 4); !fresh || err != nil {
			t.Fatal(fresh, err)
		}
		if err := x.Hold(fmt.Sprint("n", i), 4); err != nil {
			t.Fatal(err)
		}
	}
	full := func(err error) {
		t.Helper()
		var f *FullError
		if !errors.As(err, &f) || f.Limit != 4 || !strings.Contains(err.Error(), "4 groups") {
			t.Errorf("%v, want the limit of 4", err)
		}
	}
	_, err := x.Pull("p2", 4)
	full(err)
	full(x.Hold("n2", 4))
	if fresh, err := x.Pull("p1", 4); fresh || err != nil {
		t.Errorf("a name that is there: %v, %v", fresh, err)
	}
	if err := x.Hold("n1", 4); err != nil {
		t.Error(err)
	}
	x.Undo("p1")
	if err := x.Hold("n2", 4); err != nil {
		t.Error(err)
	}
	st.known["n2"] = true // it had a binding: its cursors are kept, so it counts
	x.Release("n2")
	_, err = x.Pull("p1", 4)
	full(err)
}

func TestNamesOfAStart(t *testing.T) {
	x, st := table()
	st.has["X.a"], st.known["X.a"], st.known["old"] = true, true, true
	st.has["X%2Ea"], st.known["X%2Ea"] = true, true
	for _, s := range []struct {
		add  func(string) error
		name string
		by   string
	}{
		{x.AddPush, "X.a", ""}, {x.AddPush, "old", ""}, {x.AddPush, "X%2Ea", "X.a"}, {x.AddPull, "X%2Ea", "X.a"}, {x.AddPull, "old", ""}, {x.AddPull, "new", ""}, {x.AddPull, "new", ""},
	} {
		err := s.add(s.name)
		var taken *TakenError
		if (err == nil) != (s.by == "") || err != nil && (!errors.As(err, &taken) || taken.Group != s.by) {
			t.Errorf("%s: %v, want it taken by %q", s.name, err, s.by)
		}
	}
	if err := x.Hold("old", many); err == nil {
		t.Error("a group that has ended took a name that a subscription group has")
	}
	if err := x.Hold("X.a", many); err != nil {
		t.Error(err)
	}
}

// Of a heartbeat and a subscription at the same moment one gets the name.
func TestOnlyOneFaceGetsAName(t *testing.T) {
	x, _ := table()
	for i := range 2000 {
		name := fmt.Sprint("g", i)
		start := make(chan struct{})
		var won [4]bool
		var wg sync.WaitGroup
		for k := range won {
			wg.Add(1)
			go func() {
				defer wg.Done()
				<-start
				var err error
				if k%2 == 0 {
					_, err = x.Pull(name, 1<<30)
				} else {
					err = x.Hold(name, 1<<30)
				}
				won[k] = err == nil
			}()
		}
		close(start)
		wg.Wait()
		if won[0] != won[2] || won[1] != won[3] || won[0] == won[1] {
			t.Fatalf("%s: pull %v %v, push %v %v", name, won[0], won[2], won[1], won[3])
		}
	}
}

func TestANameThatPullsIsFoundWithoutAnAllocation(t *testing.T) {
	x, _ := table()
	buf := []byte("orders")
	if _, err := x.Pull(string(buf), many); err != nil {
		t.Fatal(err)
	}
	name := "orders"
	if n := testing.AllocsPerRun(100, func() {
		if _, err := x.Pull(name, many); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
