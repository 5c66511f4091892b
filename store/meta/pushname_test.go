package meta

import "testing"

func TestPullName(t *testing.T) {
	for _, tc := range []struct{ give, want string }{
		{"S-ump", "S-ump"}, {"a.b", "a%2Eb"}, {"a%b", "a%b"}, {"a%.b", "a%25%2Eb"}, {"@", "%40"}, {"a|b", "a|b"}, {"S.ump", "S%2Eump"},
	} {
		got := PullName(tc.give)
		if got != tc.want {
			t.Errorf("PullName(%q) = %q, want %q", tc.give, got, tc.want)
		}
		if err := CheckGroup(got); err != nil {
			t.Errorf("PullName(%q): %v", tc.give, err)
		}
		if plain := PlainGroup(tc.give); plain != (tc.give == tc.want) {
			t.Errorf("PlainGroup(%q) = %v", tc.give, plain)
		}
	}
}
