package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// value is one setting of a Config: how it is read from text, checked, and written as text again. set must leave the
// old setting in place when it returns an error; the error says what was expected, without the key's name.
type value interface {
	set(text string) error
	String() string
	form() string // what may be written, for people
}

type textValue struct {
	p     *string
	check func(string) error
	desc  string
}

func (v textValue) String() string { return *v.p }
func (v textValue) form() string   { return v.desc }
func (v textValue) set(s string) error {
	if v.check != nil {
		if err := v.check(s); err != nil {
			return err
		}
	}
	*v.p = s
	return nil
}

// enumValue keeps one of a few words; T lets a Config field have a type of its own.
type enumValue[T ~string] struct {
	p     *T
	words []T
}

func (v enumValue[T]) String() string { return string(*v.p) }
func (v enumValue[T]) form() string {
	w := make([]string, len(v.words))
	for i := range v.words {
		w[i] = "`" + string(v.words[i]) + "`"
	}
	return strings.Join(w, ", ")
}

func (v enumValue[T]) set(s string) error {
	for _, w := range v.words {
		if string(w) == s {
			*v.p = w
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.ReplaceAll(v.form(), "`", ""))
}

type boolValue struct{ p *bool }

func (v boolValue) String() string { return strconv.FormatBool(*v.p) }
func (v boolValue) form() string   { return "`true`, `false`" }
func (v boolValue) set(s string) error {
	switch s {
	case "true":
		*v.p = true
	case "false":
		*v.p = false
	default:
		return errors.New("want true or false")
	}
	return nil
}

type intValue struct {
	p        *int64
	min, max int64
}

func (v intValue) String() string { return strconv.FormatInt(*v.p, 10) }
func (v intValue) form() string   { return fmt.Sprintf("%d to %d", v.min, v.max) }
func (v intValue) set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return errors.New("want a whole number")
	}
	if n < v.min {
		return fmt.Errorf("the least is %d", v.min)
	}
	if n > v.max {
		return fmt.Errorf("the most is %d", v.max)
	}
	*v.p = n
	return nil
}

// sizeValue is a number of bytes, written with KiB, MiB, GiB or TiB, or plain.
type sizeValue struct {
	p        *int64
	min, max int64
	multiple int64 // 0: any
	zero     string
}

func (v sizeValue) String() string { return FormatSize(*v.p) }
func (v sizeValue) form() string {
	s := FormatSize(v.min) + " to " + FormatSize(v.max)
	if v.multiple > 0 {
		s += ", a multiple of " + FormatSize(v.multiple)
	}
	if v.zero != "" {
		s += "; 0 " + v.zero
	}
	return s
}

func (v sizeValue) set(s string) error {
	n, err := ParseSize(s)
	switch {
	case err != nil:
		return err
	case n == 0 && v.zero != "":
	case n < v.min:
		return fmt.Errorf("the least is %s", FormatSize(v.min))
	case n > v.max:
		return fmt.Errorf("the most is %s", FormatSize(v.max))
	case v.multiple > 0 && n%v.multiple != 0:
		return fmt.Errorf("want a multiple of %s", FormatSize(v.multiple))
	}
	*v.p = n
	return nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads a number of bytes: a whole number, alone or followed by B, KiB, MiB, GiB or TiB.
func ParseSize(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range sizeUnits {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = strings.TrimSpace(d), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("want a size such as 4MiB, 1GiB or a whole number of bytes")
	}
	if n > (1<<63-1)/unit {
		return 0, errors.New("larger than any file can be")
	}
	return n * unit, nil
}

// FormatSize writes a number of bytes in the largest unit that keeps it whole.
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

type durationValue struct {
	p        *time.Duration
	min, max time.Duration
}

func (v durationValue) String() string { return FormatDuration(*v.p) }
func (v durationValue) form() string {
	return FormatDuration(v.min) + " to " + FormatDuration(v.max)
}

func (v durationValue) set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a time with its unit, such as 500ms, 5s or 2m")
	}
	if d < v.min {
		return fmt.Errorf("the least is %s", FormatDuration(v.min))
	}
	if d > v.max {
		return fmt.Errorf("the most is %s", FormatDuration(v.max))
	}
	*v.p = d
	return nil
}

// FormatDuration is Duration.String without the zero parts: 2m, not 2m0s.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// listValue is a list of texts: a YAML sequence, or one text with commas or, as RocketMQ has it, semicolons.
type listValue struct {
	p     *[]string
	check func(string) error
	desc  string
	most  int // parts; 0: any number
}

func (v listValue) String() string { return strings.Join(*v.p, ",") }
func (v listValue) form() string   { return v.desc }
func (v listValue) set(s string) error {
	var out []string
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' }) {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if err := v.check(part); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		out = append(out, part)
	}
	if v.most > 0 && len(out) > v.most {
		return fmt.Errorf("%d of them, at most %d are possible", len(out), v.most)
	}
	*v.p = out
	return nil
}

// hourOfDay accepts a full hour, also with a leading zero, as RocketMQ has it.
func hourOfDay(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 0 || n > 23 || len(s) > 2 {
		return errors.New("want an hour from 0 to 23")
	}
	return nil
}

// delayLevel accepts the delay of a level.
func delayLevel(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d < time.Millisecond || d > 40*24*time.Hour {
		return errors.New("want a time from 1ms to 960h with its unit, such as 30s or 2h")
	}
	return nil
}

// listenAddr accepts what a listener can be given: host:port, :port, or one of the words.
func listenAddr(words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if s == w {
				return nil
			}
		}
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return fmt.Errorf("want host:port or :port (an IPv6 host in brackets), or %s", strings.Join(words, " or "))
		}
		if strings.ContainsAny(host, " /") {
			return fmt.Errorf("host %q is neither a name nor an address", host)
		}
		return checkPort(port, 0)
	}
}

// dialAddr accepts the address of another process.
func dialAddr(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return errors.New("want host:port")
	}
	return checkPort(port, 1)
}

func checkPort(port string, least int) error {
	n, err := strconv.Atoi(port)
	if err != nil || n < least || n > 65535 {
		return fmt.Errorf("port %q: want a number from %d to 65535", port, least)
	}
	return nil
}

// hostOnly accepts a host name or an address without a port; empty is allowed.
func hostOnly(s string) error {
	if ip := net.ParseIP(s); ip != nil && ip.IsUnspecified() {
		return errors.New("stands for every address; clients need one that they can connect to")
	} else if s == "" || ip != nil {
		return nil
	}
	if len(s) > 253 {
		return errors.New("the most is 253 characters")
	}
	for _, r := range s {
		if r != '.' && r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return errors.New("want a host name or an address, without a port")
		}
	}
	return nil
}

// nodeName accepts what RocketMQ's tools accept as the name of a broker or cluster; both also name a system topic.
func nodeName(s string) error {
	if s == "" || len(s) > 127 {
		return errors.New("want 1 to 127 characters")
	}
	for _, r := range s {
		if r != '-' && r != '_' && r != '%' && r != '|' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%q is not allowed; want letters, digits, - _ %% |", r)
		}
	}
	return nil
}

func notEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must not be empty")
	}
	return nil
}

// httpURL accepts the address of an HTTP server, or nothing.
func httpURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("want an address such as http://pyroscope:4040")
	}
	return nil
}
