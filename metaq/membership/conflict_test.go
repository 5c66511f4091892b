package membership

import (
	"slices"
	"strings"
	"testing"

	"github.com/fusionmq/fusionmq/metaq/remoting"
)

func TestMembersThatSubscribeDifferentlyAreInConflict(t *testing.T) {
	sql := func(topic, expr string, version remoting.Long) sub {
		return sub{Topic: topic, SubString: expr, ExpressionType: "SQL92", SubVersion: version}
	}
	for _, tc := range []struct {
		name string
		a, b []sub
		want bool
	}{
		{"alike", []sub{tag("T", "A", 1)}, []sub{tag("T", "A", 1)}, false},
		{"another version", []sub{tag("T", "A", 1)}, []sub{tag("T", "A", 7)}, false},
		{"written otherwise", []sub{tag("T", "A||B", 1), tag("U", "*", 1)}, []sub{tag("U", "", 1), tag("T", " B || A", 1)}, false},
		{"tags as a list", []sub{tag("T", "A||B", 1)}, []sub{{Topic: "T", TagsSet: []string{"B", "A"}}}, false},
		{"one knows of the retry topic", []sub{tag("T", "A", 1), tag("%RETRY%G", "*", 1)}, []sub{tag("T", "A", 1)}, false},
		{"other tags", []sub{tag("T", "A", 1)}, []sub{tag("T", "B", 1)}, true},
		{"other topics", []sub{tag("T", "*", 1)}, []sub{tag("U", "*", 1)}, true},
		{"a topic more", []sub{tag("T", "*", 1)}, []sub{tag("T", "*", 1), tag("U", "*", 1)}, true},
		{"another kind", []sub{tag("T", "A", 1)}, []sub{sql("T", "A", 1)}, true},
		{"another expression", []sub{sql("T", "a > 1", 1)}, []sub{sql("T", "a > 2", 1)}, true},
	} {
		r := New()
		r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", tc.a...))
		if r.Conflict("G") || len(r.Conflicts()) > 0 {
			t.Fatalf("%s: one member is in conflict", tc.name)
		}
		r.Beat(at(0), Peer{Conn: 2}, beat("b", "G", tc.b...))
		if got := r.Conflict("G"); got != tc.want || slices.Contains(r.Conflicts(), "G") != tc.want {
			t.Errorf("%s: conflict %v, want %v: %q and %q", tc.name, got, tc.want, r.Consumers("G")[0].Subs, r.Consumers("G")[1].Subs)
		}
		r.Beat(at(1), Peer{Conn: 2}, beat("b", "G", tc.a...)) // it comes to reason
		if r.Conflict("G") {
			t.Errorf("%s: still in conflict", tc.name)
		}
		r.Beat(at(2), Peer{Conn: 2}, beat("b", "G", tc.b...))
		if r.Drop(1); r.Conflict("G") {
			t.Errorf("%s: in conflict with one who has gone", tc.name)
		}
	}
}

func TestConflictOfModelsAndWithoutSubscriptions(t *testing.T) {
	r := New()
	r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", tag("T", "*", 1)))
	cast := beat("b", "G", tag("T", "*", 1))
	cast.ConsumerDataSet[0].MessageModel = remoting.Broadcasting
	if r.Beat(at(0), Peer{Conn: 2}, cast); !r.Conflict("G") {
		t.Error("broadcasting beside clustering is no conflict")
	}
	// A heartbeat without subscriptions keeps what was said before.
	short := beat("b", "G")
	short.WithoutSub, short.HeartbeatFingerprint = true, 7
	short.ConsumerDataSet[0].MessageModel = remoting.Broadcasting
	if r.Beat(at(1), Peer{Conn: 2}, short); !r.Conflict("G") {
		t.Error("a short heartbeat ends the conflict")
	}
	if r.Beat(at(1), Peer{Conn: 3}, short); len(r.mu.consumers["G"].forms) != 2 {
		t.Error("a member that has said nothing counts")
	}
	r.Expire(at(100))
	if len(r.Conflicts()) != 0 {
		t.Error("in conflict without members")
	}
}

func TestLaw7WhatIsShownOfASubscriptionIsBounded(t *testing.T) {
	r := New()
	r.Beat(at(0), Peer{Conn: 1}, beat("a", "G", tag("T", strings.Repeat("é", 5000), 1)))
	r.Beat(at(0), Peer{Conn: 2}, beat("b", "G", tag("T", strings.Repeat("é", 5001), 1)))
	if s := r.Consumers("G")[0].Subs; len(s) > maxShown+3 || !strings.HasPrefix(s, "T: é") || !r.Conflict("G") {
		t.Errorf("%d bytes %.20q, conflict %v", len(s), s, r.Conflict("G"))
	}
}
