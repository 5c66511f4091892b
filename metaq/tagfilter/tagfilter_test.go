package tagfilter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCodeIsJavasHash(t *testing.T) {
	for tag, want := range map[string]int64{
		"": 0, "TagA": 2598919, "TagB": 2598920, "Aa": 2112, "BB": 2112, "polygenelubricants": -2147483648, "é": 233,
		"😀": 31*0xD83D + 0xDE00, // two UTF-16 units
	} {
		if got := Code(tag); got != want {
			t.Errorf("Code(%q) = %d, want %d", tag, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, give string
		match      []string // tags that pass
		reject     []string
		wantErr    error
	}{
		{name: "the empty text wants everything", give: "", match: []string{"", "A"}},
		{name: "a star wants everything", give: "*", match: []string{"", "A"}},
		{name: "one tag", give: "A", match: []string{"A"}, reject: []string{"", "B", "*"}},
		{name: "a list with blanks and empty parts", give: " A || || B", match: []string{"A", "B"}, reject: []string{"", "C"}},
		{name: "a star inside a list is a tag", give: "A||Tag*", match: []string{"A", "Tag*"}, reject: []string{"TagA"}},
		{name: "equal hashes pass", give: "Aa", match: []string{"Aa", "BB"}},
		{name: "a single bar is part of the tag", give: "A|B", match: []string{"A|B"}, reject: []string{"A", "B"}},
		{name: "only bars", give: "||", wantErr: ErrNoTag},
		{name: "only blanks", give: "  ", wantErr: ErrNoTag},
		{name: "more tags than the short search takes", give: strings.Join(strings.Split("abcdefghijklmnop", ""), "||"), match: []string{"a", "p", "h"}, reject: []string{"", "q"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := Parse(tc.give)
			if !errors.Is(err, tc.wantErr) {
				t.Fatalf("Parse(%q): %v, want %v", tc.give, err, tc.wantErr)
			}
			for _, tag := range tc.match {
				if !f.Match(Code(tag)) {
					t.Errorf("%q rejects tag %q", tc.give, tag)
				}
			}
			for _, tag := range tc.reject {
				if f.Match(Code(tag)) {
					t.Errorf("%q passes tag %q", tc.give, tag)
				}
			}
		})
	}
}

func TestSubscriptionTakesTextAndList(t *testing.T) {
	for _, tc := range []struct {
		expr string
		tags []string
		want []int64 // nil: everything
	}{
		{"", nil, nil}, {"*", []string{}, nil}, {"*", []string{"A"}, nil},
		{"A || B", []string{"A", "B"}, []int64{65, 66}},
		{"A || B", nil, []int64{65, 66}},
		{"", []string{"B"}, []int64{66}},
		{"||", []string{"B"}, []int64{66}},
	} {
		f, err := Subscription(tc.expr, tc.tags)
		if err != nil || f.WantsAll() != (tc.want == nil) || !slices.Equal(f.Codes(), tc.want) {
			t.Errorf("Subscription(%q, %q) = %v, %v, want codes %v", tc.expr, tc.tags, f, err, tc.want)
		}
	}
	if _, err := Subscription("||", nil); !errors.Is(err, ErrNoTag) {
		t.Errorf("no tag in text and list: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "*", "A", "A||B", "||", " ", "é||😀", "\xff||\x00", strings.Repeat("A||", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x, err := Parse(s)
		if err != nil {
			return
		}
		y, _ := Parse(s)
		if !slices.Equal(x.Codes(), y.Codes()) || !slices.IsSorted(x.Codes()) {
			t.Fatalf("%q: %v and %v", s, x.Codes(), y.Codes())
		}
		for part := range strings.SplitSeq(s, "||") {
			if p := strings.TrimSpace(part); p != "" && !x.Match(Code(p)) {
				t.Fatalf("%q rejects its own tag %q", s, p)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("tags=%d", n), func(b *testing.B) {
			tags := make([]string, n)
			for i := range tags {
				tags[i] = fmt.Sprint("tag", i)
			}
			f, _ := Subscription("", tags)
			b.ReportAllocs()
			for i := range b.N {
				f.Match(int64(i))
			}
		})
	}
}
