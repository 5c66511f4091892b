package filter

import (
	"bufio"
	"compress/gzip"
	"errors"
	"os"
	"strings"
	"testing"
)

// properties is the property text of pairs of names and values.
func properties(pairs ...string) []byte {
	var b []byte
	for i := 0; i+1 < len(pairs); i += 2 {
		b = append(b, pairs[i]...)
		b = append(b, nameEnd)
		b = append(b, pairs[i+1]...)
		b = append(b, valueEnd)
	}
	return b
}

var unescape = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n")

// TestSQL92AnswersAsRocketMQ holds the language against what RocketMQ 5.3.3's own filter library answered for the same
// expressions and properties (testdata/README.md). Where the two differ one of the reasons in differs must hold.
func TestSQL92AnswersAsRocketMQ(t *testing.T) {
	f, err := os.Open("testdata/rocketmq-5.3.3.tsv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	reasons := map[string]int{}
	for s := bufio.NewScanner(z); s.Scan(); lines++ {
		want, rest, _ := strings.Cut(s.Text(), "\t")
		fields := strings.Split(rest, "\t")
		text := unescape.Replace(fields[0])
		var pairs []string
		for _, p := range fields[1:] {
			pairs = append(pairs, unescape.Replace(p))
		}
		got := "refused"
		e, err := ParseSQL92(text)
		if err == nil {
			m := &Message{Properties: properties(pairs...)}
			tree, program := e.Eval(nil, m), e.Compile(nil).Eval(m)
			if tree != program {
				t.Errorf("%s with %q: tree %v, program %v", text, pairs, tree, program)
			}
			got = tree.String()
		}
		if got == want {
			continue
		}
		why := differs(e, err, text, pairs, want)
		if why == "" {
			t.Errorf("%s with %q: %s, RocketMQ says %s %v", text, pairs, got, want, err)
		}
		reasons[why]++
	}
	if lines < 8000 {
		t.Errorf("only %d lines were compared", lines)
	}
	t.Log(lines, "lines, different on purpose:", reasons)
}

// differs says why an answer is not RocketMQ's, "" when there is no reason for it.
func differs(e *Expr, err error, text string, pairs []string, want string) string {
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		for _, r := range []string{"expected the end of the expression", "expected a number behind a sign", "does not begin with 0",
			"TRUE and FALSE cannot be compared"} {
			if strings.Contains(syntax.Reason, r) {
				return "refused: " + r
			}
		}
		return ""
	}
	if want == "refused" {
		if strings.Contains(text, "-9223372036854775808") {
			return "the least whole number"
		}
		return ""
	}
	for i := 1; i < len(pairs); i += 2 {
		if want == "failed" && (pairs[i] == "3000000000" || pairs[i] == "9223372036854775808") {
			return "whole numbers have 64 bits"
		}
		if pairs[i] == "１２" {
			return "digits are ASCII"
		}
	}
	missing, left, right := false, false, false
	walk(e.root, func(n node) {
		switch n := n.(type) {
		case *property:
			missing = missing || lookup(properties(pairs...), n.name) == nil
		case *compare:
			if n.op == eq || n.op == ne {
				left = left || isCondition(n.l)
				right = right || !isLiteral(n.r)
			}
		}
	})
	switch {
	case want == "failed" && left:
		return "true and false on the left side"
	case missing && right:
		return "missing on the right side"
	}
	return ""
}

func walk(n node, visit func(node)) {
	visit(n)
	all := func(list ...node) {
		for _, x := range list {
			walk(x, visit)
		}
	}
	switch n := n.(type) {
	case *and:
		all(n.list...)
	case *or:
		all(n.list...)
	case *not:
		all(n.x)
	case *compare:
		all(n.l, n.r)
	case *between:
		all(n.x, n.low, n.high)
	case *in:
		all(n.x)
	case *part:
		all(n.x)
	case *like:
		all(n.x)
	case *search:
		all(n.x)
	case *isNull:
		all(n.x)
	}
}
