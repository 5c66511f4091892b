package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Sources are the places that settings come from.
type Sources struct {
	File  string            // path of a YAML file; "" reads none
	Env   []string          // NAME=value, as from os.Environ
	Flags map[string]string // text of each flag that was given, by the name of its key
}

// Loaded is a configuration with the place that each setting came from.
type Loaded struct {
	Config
	origin map[string]string
}

// Origin says where the setting of a key came from: "flag --data", "environment FUSIONMQ_DATA", "file x.yaml line 3",
// "profile production" or "default".
func (l *Loaded) Origin(key string) string { return l.origin[key] }

// maxFile bounds what is read of a file that someone names by mistake.
const maxFile = 1 << 20

// Error is one mistake in one source.
type Error struct {
	Where string // "file x.yaml line 3", "environment FUSIONMQ_DATA", "flag --data"
	Key   string // "" when the key is unknown
	Text  string
}

func (e *Error) Error() string {
	if e.Key == "" {
		return e.Where + ": " + e.Text
	}
	return e.Where + ": " + e.Key + " " + e.Text
}

// Load reads the sources. On failure the error joins one [*Error] for every mistake.
func Load(s Sources) (*Loaded, error) {
	l := &Loaded{origin: map[string]string{}}
	ld := loader{byName: map[string]Key{}, origin: l.origin}
	ks := keys(&l.Config)
	for _, k := range ks {
		ld.byName[k.Name] = k
		ld.names = append(ld.names, k.Name)
		ld.apply(k, k.Default, "default")
	}

	// The strongest source is applied last; a mistake in a weaker one is reported even so.
	if s.File != "" {
		ld.file(s.File)
	}
	ld.env(s.Env)
	flags := make([]string, 0, len(s.Flags))
	for name := range s.Flags {
		flags = append(flags, name)
	}
	sort.Strings(flags)
	for _, name := range flags {
		k, ok := ld.byName[name]
		if !ok || !k.HasFlag {
			ld.fail("flag --"+name, "", "no such key")
			continue
		}
		ld.apply(k, s.Flags[name], "flag --"+k.Flag())
	}
	if l.Profile == Production {
		for _, k := range ks {
			if k.Production != "" && l.origin[k.Name] == "default" {
				ld.apply(k, k.Production, "profile production")
			}
		}
	}
	ld.together(&l.Config)
	if len(ld.errs) > 0 {
		return nil, errors.Join(ld.errs...)
	}
	return l, nil
}

type loader struct {
	byName map[string]Key
	names  []string
	origin map[string]string
	errs   []error
}

func (ld *loader) fail(where, key, format string, args ...any) {
	ld.errs = append(ld.errs, &Error{Where: where, Key: key, Text: fmt.Sprintf(format, args...)})
}

func (ld *loader) apply(k Key, text, where string) {
	if err := k.value.set(text); err != nil {
		ld.fail(where, k.Name, "is %q: %v", text, err)
		return
	}
	ld.origin[k.Name] = where
}

// unknown reports a key that does not exist. shown turns a name into what this source would have written.
func (ld *loader) unknown(where, written, name string, shown func(Key) string) {
	hint := "see docs/configuration.md or `fusionmq config docs` for all of them"
	if n := nearest(name, ld.names); n != "" {
		hint = fmt.Sprintf("did you mean %q?", shown(ld.byName[n]))
	}
	ld.fail(where, "", "unknown key %q; %s", written, hint)
}

func (ld *loader) file(path string) {
	f, err := os.Open(path)
	if err != nil {
		ld.fail("file "+path, "", "cannot be read: %v", errors.Unwrap(err))
		return
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		ld.fail("file "+path, "", "cannot be read: %v", err)
		return
	}
	if len(text) > maxFile {
		ld.fail("file "+path, "", "is larger than %s, so it is no configuration", FormatSize(maxFile))
		return
	}
	ld.yaml(path, text)
}

func (ld *loader) yaml(path string, text []byte) {
	var doc yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return // nothing but comments
	} else if err != nil {
		ld.fail("file "+path, "", "%v", err)
		return
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		ld.fail("file "+path, "", "holds a second document; want one")
		return
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		ld.fail(at(path, root), "", "want keys, each with its value, such as `data: ./data`")
		return
	}
	ld.mapping(path, "", root, map[string]int{})
}

func at(path string, n *yaml.Node) string { return fmt.Sprintf("file %s line %d", path, n.Line) }

// mapping applies the keys of one YAML mapping; a key may also be written with its dots. seen holds the line of each key so far.
func (ld *loader) mapping(path, prefix string, m *yaml.Node, seen map[string]int) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		name, v := prefix+m.Content[i].Value, m.Content[i+1]
		where := at(path, m.Content[i])
		k, known := ld.byName[name]
		switch {
		case v.Kind == yaml.AliasNode || v.Anchor != "":
			ld.fail(where, "", "%q: anchors and aliases are not used here; write the value itself", name)
		case !known && v.Kind == yaml.MappingNode && ld.isSection(name):
			ld.mapping(path, name+".", v, seen)
		case !known && ld.isSection(name):
			ld.fail(where, "", "%q is a section; want keys below it, such as %q", name, ld.firstOf(name))
		case !known && v.Kind == yaml.MappingNode && nearest(name, ld.sections()) != "":
			ld.fail(where, "", "unknown section %q; did you mean %q?", name, nearest(name, ld.sections()))
		case !known:
			ld.unknown(where, name, name, func(k Key) string { return k.Name })
		case seen[name] > 0:
			ld.fail(where, name, "is set a second time; the first is in line %d", seen[name])
		default:
			seen[name] = m.Content[i].Line
			if text, err := scalar(v); err != nil {
				ld.fail(where, name, "%v", err)
			} else {
				ld.apply(k, text, where)
			}
		}
	}
}

func (ld *loader) sections() []string {
	var all []string
	for _, n := range ld.names {
		if s := ld.byName[n].Section(); s != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

func (ld *loader) isSection(name string) bool { return ld.firstOf(name) != "" }

func (ld *loader) firstOf(section string) string {
	for _, n := range ld.names {
		if strings.HasPrefix(n, section+".") {
			return n
		}
	}
	return ""
}

// scalar gives the text of a value; a sequence becomes its elements joined by commas.
func scalar(v *yaml.Node) (string, error) {
	switch v.Kind {
	case yaml.ScalarNode:
		if v.Tag == "!!null" {
			return "", errors.New("has no value")
		}
		return v.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, len(v.Content))
		for i, e := range v.Content {
			if e.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of plain values")
			}
			parts[i] = e.Value
		}
		return strings.Join(parts, ","), nil
	default:
		return "", errors.New("want a value, not more keys below it")
	}
}

// env applies FUSIONMQ_ variables. A name that is no key is a mistake, except where it has another owner.
func (ld *loader) env(environ []string) {
	byEnv := make(map[string]Key, len(ld.byName))
	for _, k := range ld.byName {
		byEnv[k.Env()] = k
	}
	environ = append([]string(nil), environ...)
	sort.Strings(environ)
	for _, kv := range environ {
		name, text, ok := strings.Cut(kv, "=")
		if !ok || !strings.HasPrefix(name, envPrefix) {
			continue
		}
		if k, ok := byEnv[name]; ok {
			ld.apply(k, text, "environment "+name)
		} else if !foreignEnv(name, text) {
			ld.unknown("environment", name, ld.guess(name), Key.Env)
		}
	}
}

// guess writes the name of a variable as a key, for the search for the one that was meant. The first _ stands for the dot where that gives
// a section, or where it makes a key findable.
func (ld *loader) guess(name string) string {
	word := strings.ToLower(strings.TrimPrefix(name, envPrefix))
	dotted := strings.Replace(word, "_", ".", 1)
	if section, _, _ := strings.Cut(word, "_"); ld.isSection(section) || nearest(word, ld.names) == "" {
		return dotted
	}
	return word
}

// otherEnv are variables with our prefix that are no settings of the server.
var otherEnv = []struct{ name, doc string }{
	{"FUSIONMQ_CONFIG", "the file itself"},
	{"FUSIONMQ_ADDR", "where `fusionctl` finds the server"},
	{"FUSIONMQ_BIN", "the program that the tests under `integration` run"},
	{"FUSIONMQ_BENCH_", "with more behind it: sizes of benchmarks"},
}

// serviceLink are the names that Kubernetes makes for a service whose name begins with fusionmq, such as fusionmq-broker, in every
// container of the namespace; FUSIONMQ_BROKER_PORT is one of them only with a value such as tcp://10.0.0.1:10911.
var (
	serviceLink = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)
	serviceURL  = regexp.MustCompile(`^(tcp|udp|sctp)://`)
)

// foreignEnv says whether a variable with our prefix belongs to someone else.
func foreignEnv(name, text string) bool {
	for _, o := range otherEnv {
		if name == o.name || strings.HasSuffix(o.name, "_") && strings.HasPrefix(name, o.name) {
			return true
		}
	}
	return serviceLink.MatchString(name) || strings.HasSuffix(name, "_PORT") && serviceURL.MatchString(text)
}

// together checks what one key alone cannot say.
func (ld *loader) together(c *Config) {
	if c.Profile == Production && !c.Insecure {
		ld.fail(ld.origin["profile"], "profile", "is production, which needs access control, and this version has none yet: "+
			"everyone who reaches a port may do everything. In a network that you trust, add --insecure (insecure: true)")
	}
	if c.Nameserver.Addr == Off && c.Broker.Addr == Off && c.Notify.Addr == Off && c.HTTP.Addr == Off {
		ld.fail(ld.origin["broker.addr"], "broker.addr", "is off like every other listener, so nothing would be served; leave one open")
	}
	if c.Store.SegmentSize > 0 && c.Broker.MaxMessageSize > c.Store.SegmentSize/2 {
		ld.fail(ld.origin["broker.max-message-size"], "broker.max-message-size", "is %s; the most is half of store.segment-size, which is %s",
			FormatSize(c.Broker.MaxMessageSize), FormatSize(c.Store.SegmentSize))
	}
	if c.Store.DiskRefuse <= c.Store.DiskForced {
		ld.fail(ld.origin["store.disk-refuse"], "store.disk-refuse", "is %d; it must be above store.disk-forced, which is %d", c.Store.DiskRefuse, c.Store.DiskForced)
	}
}
