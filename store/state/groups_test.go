package state

import (
	"fmt"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestPushGroups(t *testing.T) {
	x := &fixedExchange{groups: []string{"a", "b"}}
	m := NewMachine(x)
	bind := Binding{Kind: BindFanout}
	at := int64(0)
	apply := func(ops ...Op) {
		at++
		m.Apply(at, ops)
	}
	send := func(topic string) int64 {
		at++
		m.Message(&Head{Topic: topic, Address: at, Position: at, Size: 1})
		return at
	}
	is := func(what string, want ...PushGroup) {
		t.Helper()
		if d := gocmp.Diff(want, m.PushGroups()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
		for _, name := range []string{"a", "b", "c"} {
			listed := false
			for _, g := range want {
				listed = listed || g.Name == name
			}
			if has, _ := m.PushGroup(name); has != listed {
				t.Errorf("%s: PushGroup(%s) = %v", what, name, has)
			}
		}
	}
	is("empty")
	apply(Op{Kind: OpBind, Topic: "T", Group: "b", Binding: bind}, Op{Kind: OpBind, Topic: "S", Group: "b", Binding: bind},
		Op{Kind: OpBind, Topic: "T", Group: "a", Binding: bind}, Op{Kind: OpAttach, Topic: "T", Group: "a"})
	is("bound", PushGroup{"a", []string{"T"}}, PushGroup{"b", []string{"S", "T"}})

	owed := send("T")
	apply(Op{Kind: OpUnbind, Topic: "T", Group: "a", Binding: bind}, Op{Kind: OpUnbind, Topic: "T", Group: "b", Binding: bind},
		Op{Kind: OpUnbind, Topic: "S", Group: "b", Binding: bind})
	is("a is owed by the window, b by its cursors", PushGroup{"a", []string{"T"}}, PushGroup{"b", []string{"S", "T"}})
	apply(Op{Kind: OpCursor, Topic: "T", Group: "b", First: at}, Op{Kind: OpCursor, Topic: "S", Group: "b", First: at})
	is("the cursors have passed", PushGroup{"a", []string{"T"}})
	apply(Op{Kind: OpDetach, Topic: "T", Group: "a"})
	is("a is owed a retry", PushGroup{"a", []string{"T"}})

	loaded, err := Load(m.Save(nil), x)
	if err != nil {
		t.Fatal(err)
	}
	m = loaded
	is("a is owed a retry, out of a snapshot", PushGroup{"a", []string{"T"}})
	apply(Op{Kind: OpRetire, Topic: "T", Group: "a", First: owed})
	is("nothing is left")
	if d := gocmp.Diff([]string{"a", "b"}, m.Known()); d != "" {
		t.Errorf("known (-want +got):\n%s", d)
	}
	volatile := Binding{Kind: BindFanout, Volatile: true}
	apply(Op{Kind: OpBind, Topic: "T", Group: "c", Binding: volatile})
	is("c is bound", PushGroup{"c", []string{"T"}})
	send("T")
	apply(Op{Kind: OpUnbind, Topic: "T", Group: "c", Binding: volatile})
	is("a binding that is not persistent leaves nothing")
	if _, known := m.PushGroup("d"); known {
		t.Error("d is known")
	}
}

// bindMany binds as many groups to one topic, moves their cursors, and ends every second binding.
func bindMany(m *Machine, groups int) {
	for i := range groups {
		m.Apply(int64(i)*3, []Op{{Kind: OpBind, Topic: "T", Group: fmt.Sprintf("group-%06d", i), Binding: Binding{Kind: BindDirect, Expr: "created"}}})
	}
	at := int64(groups) * 3
	for i := range groups {
		op := Op{Kind: OpCursor, Topic: "T", Group: fmt.Sprintf("group-%06d", i), First: at}
		if i%2 == 0 {
			op.Kind, op.Binding = OpUnbind, Binding{Kind: BindDirect, Expr: "created"}
		}
		m.Apply(at+int64(i), []Op{op})
	}
}

// What one group does on a topic costs nothing for each of the others that are bound to it.
func TestBindingsCostOneLookEach(t *testing.T) {
	m := NewMachine(nil)
	const groups = 2000
	bindMany(m, groups)
	if m.looked > 3*groups {
		t.Errorf("%d bindings were looked at for %d groups", m.looked, groups)
	}
	if n := len(m.Bindings()); n != groups/2 {
		t.Errorf("%d bindings hold, want %d", n, groups/2)
	}
}

// BenchmarkBind is the bind of a further group on a topic with so many, and half an unbind or cursor.
func BenchmarkBind(b *testing.B) {
	for _, groups := range []int{1000, 33_600} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			b.ReportAllocs()
			for done := 0; done < b.N; done += groups {
				bindMany(NewMachine(nil), groups)
			}
		})
	}
}
