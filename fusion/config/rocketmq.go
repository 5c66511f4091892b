package config

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sort"
	"strconv"
	"strings"
	"unicode"
)

// Imported is a RocketMQ broker.conf in our words.
type Imported struct {
	YAML     []byte   // a complete file for --config; comments name each line of the source
	Warnings []string // settings that have no effect here, each with the reason
}

// property is one line of a Java properties file.
type property struct {
	name, value string
	line        int
}

// Import translates a RocketMQ broker.conf. A key that this version has no equivalent for becomes a comment and a warning, so that a
// configuration of a running system starts; a value that we cannot read, and a key that would change what is kept or served
// in a way that we cannot follow (a slave, a second log directory), is an error naming line, key and value.
func Import(r io.Reader) (*Imported, error) {
	props, err := readProperties(r)
	if err != nil {
		return nil, err
	}
	im := &importer{settings: map[string]string{}, from: map[string]property{}}
	last := map[string]property{}
	for _, p := range props {
		if old, ok := last[p.name]; ok {
			im.warn("line %d: %s is set again in line %d; the last one counts, as in RocketMQ", old.line, p.name, p.line)
		}
		last[p.name] = p
	}
	for _, p := range props {
		if last[p.name].line != p.line {
			continue
		}
		if err := im.translate(p); err != nil {
			return nil, fmt.Errorf("line %d: %s=%s: %w", p.line, p.name, p.value, err)
		}
	}
	im.listeners()
	return im.finish()
}

// readProperties reads the form of java.util.Properties that broker.conf files use: # and ! comments, =, : or blank between
// name and value, a backslash at the end of a line to go on.
func readProperties(r io.Reader) ([]property, error) {
	sc := bufio.NewScanner(io.LimitReader(r, maxFile+1))
	sc.Buffer(nil, maxFile+1)
	var out []property
	var text string
	for line, first := 1, 1; sc.Scan(); line++ {
		if i := strings.IndexFunc(sc.Text(), func(r rune) bool { return r < ' ' && r != '\t' && r != '\f' && r != '\r' }); i >= 0 {
			return nil, fmt.Errorf("line %d: byte %d is no text; want a broker.conf", line, i+1)
		}
		s := strings.TrimLeft(sc.Text(), " \t\f")
		if text == "" {
			first = line
			if s == "" || s[0] == '#' || s[0] == '!' {
				continue
			}
		}
		if n := len(s) - len(strings.TrimRight(s, `\`)); n%2 == 1 {
			text += s[:len(s)-1]
			continue
		}
		text += s
		i := strings.IndexAny(text, "=: \t\f")
		if i < 0 {
			return nil, fmt.Errorf("line %d: %q has no value; want name=value", first, text)
		}
		value := strings.TrimLeft(text[i:], " \t\f")
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = value[1:]
		}
		out = append(out, property{text[:i], strings.TrimSpace(value), first})
		text = ""
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

type importer struct {
	settings map[string]string // by our key, as text
	from     map[string]property
	host     string // bindAddress
	comments []string
	warnings []string
	port     property // listenPort
}

func (im *importer) warn(format string, args ...any) {
	im.warnings = append(im.warnings, fmt.Sprintf(format, args...))
}

func (im *importer) set(p property, key, text string) {
	im.settings[key] = text
	im.from[key] = p
}

// skip keeps a setting as a comment.
func (im *importer) skip(p property, why string) {
	im.comments = append(im.comments, "# "+oneLine(p.name)+"="+oneLine(p.value)+": "+why)
	im.warn("line %d: %s=%s has no effect: %s", p.line, p.name, p.value, why)
}

// oneLine keeps a comment on its line, whatever a value holds.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// translate handles one line.
func (im *importer) translate(p property) error {
	if key, ok := sameMeaning[p.name]; ok {
		text, err := key.convert(p.value)
		if err != nil {
			return err
		}
		im.set(p, key.name, text)
		return nil
	}
	switch p.name {
	case "listenPort":
		if err := checkPort(p.value, 1); err != nil {
			return err
		}
		im.port = p
		return nil
	case "bindAddress":
		if net.ParseIP(p.value) == nil {
			return fmt.Errorf("want an address")
		}
		im.host = p.value
		im.from["bindAddress"] = p
		return nil
	case "brokerId":
		if p.value != "0" {
			return fmt.Errorf("only a master (0) can run: this version has no replication")
		}
		return nil
	case "brokerRole":
		if p.value == "SLAVE" {
			return fmt.Errorf("only a master can run: this version has no replication")
		}
		if p.value != "ASYNC_MASTER" {
			im.skip(p, "this version has no replication, so there is no slave to wait for")
		}
		return nil
	case "enableDLegerCommitLog", "enableControllerMode":
		if p.value == "true" {
			return fmt.Errorf("this version has no replication")
		}
		return nil
	case "storePathCommitLog":
		im.skip(p, "the log lives below the data directory")
		return nil
	case "aclEnable", "authenticationEnabled", "authorizationEnabled":
		if p.value == "true" {
			return fmt.Errorf("this version has no access control; remove the line to run without, in a network that you trust")
		}
		return nil
	}
	if why, ok := noEquivalent[p.name]; ok {
		im.skip(p, why)
		return nil
	}
	im.skip(p, "no equivalent in this version")
	return nil
}

// listeners joins port and address, which are one setting here.
func (im *importer) listeners() {
	if im.port.name == "" && im.host == "" {
		return
	}
	port, p := "10911", im.port
	if p.name != "" {
		port = p.value
	} else {
		p = im.from["bindAddress"]
	}
	im.set(p, "broker.addr", net.JoinHostPort(im.host, port))
	delete(im.from, "bindAddress")
}

// finish checks the result by loading it and writes it.
func (im *importer) finish() (*Imported, error) {
	names := make([]string, 0, len(im.settings))
	for n := range im.settings {
		names = append(names, n)
	}
	sort.Strings(names)
	var c Config
	for _, k := range keys(&c) {
		text, ok := im.settings[k.Name]
		if !ok {
			text = k.Default
		}
		if err := k.value.set(text); err != nil {
			p := im.from[k.Name]
			return nil, fmt.Errorf("line %d: %s=%s: %w", p.line, p.name, p.value, err)
		}
	}
	im.fitMessages(&c)
	im.fitLevels(&c)
	var b strings.Builder
	b.WriteString("# Translated from a RocketMQ broker.conf by `fusionmq config import`.\n")
	section := ""
	for _, top := range []bool{true, false} { // keys of the top first: they would belong to the section above them
		for _, k := range keys(&c) {
			if _, ok := im.settings[k.Name]; !ok || (k.Section() == "") != top {
				continue
			}
			name := yamlName(&b, k, &section)
			fmt.Fprintf(&b, "%s: %s # %s\n", name, yamlText(k.Text(), k.IsBool()), im.from[k.Name].name)
		}
	}
	if len(im.comments) > 0 {
		b.WriteString("\n# Without effect in this version:\n" + strings.Join(im.comments, "\n") + "\n")
	}
	return &Imported{YAML: []byte(b.String()), Warnings: im.warnings}, nil
}

// fitMessages lowers the largest message to what the segments take: RocketMQ accepts any pair of the two and refuses such a message
// when it comes.
func (im *importer) fitMessages(c *Config) {
	segment := c.Store.SegmentSize
	if segment == 0 || c.Broker.MaxMessageSize <= segment/2 {
		return
	}
	const key = "broker.max-message-size"
	was := "the default of " + FormatSize(c.Broker.MaxMessageSize)
	p, given := im.from[key]
	if given {
		was = p.name + "=" + p.value
	} else {
		p = im.from["store.segment-size"]
	}
	c.Broker.MaxMessageSize = segment / 2
	im.set(p, key, FormatSize(segment/2))
	im.warn("line %d: %s becomes %s: the most is half of a segment, which mappedFileSizeCommitLog makes %s", p.line, was, FormatSize(segment/2), FormatSize(segment))
}

// fitLevels raises the level at which messages are refused above that of forced cleaning: RocketMQ accepts any pair of the two.
func (im *importer) fitLevels(c *Config) {
	const key = "store.disk-refuse"
	if c.Store.DiskRefuse > c.Store.DiskForced {
		return
	}
	p, given := im.from[key]
	if !given {
		p = im.from["store.disk-forced"]
	}
	c.Store.DiskRefuse = c.Store.DiskForced + 1
	im.set(p, key, strconv.FormatInt(c.Store.DiskRefuse, 10))
	im.warn("line %d: %s becomes %d: it must be above store.disk-forced", p.line, key, c.Store.DiskRefuse)
}

// same is a RocketMQ key that means what one of ours means.
type same struct {
	name    string
	convert func(string) (string, error)
}

func asIs(s string) (string, error) { return s, nil }

func millis(s string) (string, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return "", fmt.Errorf("want a number of milliseconds")
	}
	return s + "ms", nil
}

func seconds(s string) (string, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<31 {
		return "", fmt.Errorf("want a number of seconds")
	}
	return s + "s", nil
}

func hours(s string) (string, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<31 {
		return "", fmt.Errorf("want a number of hours")
	}
	return s + "h", nil
}

// delayLevels turns delays in RocketMQ's units, s, m, h and d, into ours.
func delayLevels(s string) (string, error) {
	var out []string
	for _, word := range strings.Fields(s) {
		if n, ok := strings.CutSuffix(word, "d"); ok {
			days, err := strconv.ParseUint(n, 10, 16)
			if err != nil {
				return "", fmt.Errorf("%q is no delay; want a number and s, m, h or d", word)
			}
			word = strconv.FormatUint(24*days, 10) + "h"
		} else if _, err := strconv.ParseUint(strings.TrimRight(word, "smh"), 10, 32); err != nil || len(word)-len(strings.TrimRight(word, "smh")) != 1 {
			return "", fmt.Errorf("%q is no delay; want a number and s, m, h or d", word)
		}
		out = append(out, word)
	}
	return strings.Join(out, ","), nil
}

// percent keeps a share where RocketMQ keeps it. 0 is what a broker says that has its default.
func percent(low, high int64) func(string) (string, error) {
	return func(s string) (string, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return "", fmt.Errorf("want a number of percent")
		}
		return strconv.FormatInt(min(max(n, low), high), 10), nil
	}
}

func boolean(s string) (string, error) {
	s = strings.ToLower(s)
	if s != "true" && s != "false" {
		return "", fmt.Errorf("want true or false")
	}
	return s, nil
}

// not is for a key of ours that says the opposite.
func not(s string) (string, error) {
	s, err := boolean(s)
	if err != nil {
		return "", err
	}
	return strconv.FormatBool(s != "true"), nil
}

var sameMeaning = map[string]same{
	"brokerClusterName":               {"broker.cluster", asIs},
	"brokerName":                      {"broker.name", asIs},
	"namesrvAddr":                     {"broker.nameservers", asIs},
	"brokerIP1":                       {"advertise-host", asIs},
	"registerNameServerPeriod":        {"broker.register-interval", clampRegister},
	"serverChannelMaxIdleTimeSeconds": {"broker.idle-timeout", seconds},
	"enablePropertyFilter":            {"broker.property-filter", boolean},
	"autoCreateTopicEnable":           {"broker.auto-create-topics", boolean},
	"autoCreateSubscriptionGroup":     {"broker.auto-create-groups", boolean},
	"defaultTopicQueueNums":           {"broker.default-queues", asIs},
	"maxMessageSize":                  {"broker.max-message-size", asIs},
	"storePathRootDir":                {"data", asIs},
	"mappedFileSizeCommitLog":         {"store.segment-size", asIs},
	"flushDiskType":                   {"store.flush", flushType},
	"flushIntervalCommitLog":          {"store.flush-interval", millis},
	"flushConsumerOffsetInterval":     {"store.persist-interval", millis},
	"fileReservedTime":                {"store.retention", hours},
	"transactionCheckInterval":        {"broker.transaction-check-interval", millis},
	"transactionCheckMax":             {"broker.transaction-check-max", asIs},
	"rejectTransactionMessage":        {"broker.transactions", not},
	"messageDelayLevel":               {"store.delay-levels", delayLevels},
	"deleteWhen":                      {"store.delete-hours", asIs},
	"cleanResourceInterval":           {"store.clean-interval", millis},
	"deleteFileBatchMax":              {"store.delete-batch", asIs},
	"diskMaxUsedSpaceRatio":           {"store.disk-max-used", percent(10, 95)},
	"diskSpaceCleanForciblyRatio":     {"store.disk-forced", percent(30, 85)},
	"diskSpaceWarningLevelRatio":      {"store.disk-refuse", percent(35, 90)},
}

// clampRegister keeps the interval where RocketMQ keeps it: 10 to 60 s.
func clampRegister(s string) (string, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return "", fmt.Errorf("want a number of milliseconds")
	}
	return strconv.FormatInt(min(max(n, 10_000), 60_000), 10) + "ms", nil
}

func flushType(s string) (string, error) {
	switch s {
	case "ASYNC_FLUSH":
		return "async", nil
	case "SYNC_FLUSH":
		return "sync", nil
	}
	return "", fmt.Errorf("want ASYNC_FLUSH or SYNC_FLUSH")
}

// noEquivalent are keys with a reason of their own; all others get a general one.
var noEquivalent = map[string]string{
	"transactionTimeOut":     "producers are first asked 6 s after a half message; the message can say another time in its property CHECK_IMMUNITY_TIME_IN_SECONDS",
	"timerMaxDelaySec":       "a message may always have a time up to 40 days from now",
	"timerPrecisionMs":       "messages come at their time, to the millisecond",
	"timerWheelEnable":       "messages with a time are always taken",
	"recallMessageEnable":    "messages with a time can always be taken back",
	"enableCalcFilterBitMap": "used by SQL filters, which this version does not have yet",
	"traceTopicEnable":       "used by message traces, which this version does not have yet",
	"msgTraceTopicName":      "used by message traces, which this version does not have yet",

	"cleanFileForciblyEnable":        "the disk must not fill up; set store.disk-forced higher instead",
	"mappedFileSizeConsumeQueue":     "one index serves all queues; it has no files of a fixed size",
	"storeType":                      "one index serves all queues",
	"transientStorePoolEnable":       "appends are batched in memory anyway",
	"warmMapedFileEnable":            "the next file of the log is prepared before it is needed",
	"flushCommitLogLeastPages":       "the interval alone decides",
	"syncFlushTimeout":               "a sync send waits for the disk",
	"osPageCacheBusyTimeOutMills":    "no lock is held while the disk works",
	"sendMessageThreadPoolNums":      "there are no thread pools",
	"pullMessageThreadPoolNums":      "there are no thread pools",
	"sendThreadPoolQueueCapacity":    "there are no thread pools",
	"waitTimeMillsInSendQueue":       "there is no queue in front of the log",
	"waitTimeMillsInPullQueue":       "there is no queue in front of a pull",
	"brokerIP2":                      "used by replication, which this version does not have yet",
	"haListenPort":                   "used by replication, which this version does not have yet",
	"haMasterAddress":                "used by replication, which this version does not have yet",
	"slaveReadEnable":                "used by replication, which this version does not have yet",
	"inSyncReplicas":                 "used by replication, which this version does not have yet",
	"totalReplicas":                  "used by replication, which this version does not have yet",
	"minInSyncReplicas":              "used by replication, which this version does not have yet",
	"controllerAddr":                 "used by replication, which this version does not have yet",
	"metricsExporterType":            "metrics are always on, at /metrics of the HTTP port",
	"metricsPromExporterPort":        "metrics are at /metrics of the HTTP port",
	"brokerPermission":               "the broker is always readable and writable; set the permission of topics",
	"useReentrantLockWhenPutMessage": "there is one way to append",
	"transferMsgByHeap":              "pulls are answered from mapped memory",
}
