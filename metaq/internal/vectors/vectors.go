// Package vectors loads the recorded frames of remoting/testdata for tests: what passed between real RocketMQ clients, brokers and
// name servers of the releases in the file names.
package vectors

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Frame is one line of a file.
type Frame struct {
	File        string `json:"-"`
	N           int    `json:"n"`
	Conn        int    `json:"conn"`
	Dir         string `json:"dir"`  // c2s or s2c
	Peer        string `json:"peer"` // namesrv or broker
	Step        string `json:"step"`
	Code        int32  `json:"code"`
	Response    bool   `json:"response"`
	Oneway      bool   `json:"oneway"`
	Answers     int    `json:"answers"`      // of a response: N of the request
	RequestCode int32  `json:"request_code"` // of a response
	Serialize   string `json:"serialize"`
	Header      Header `json:"header"`
	BodyLen     int    `json:"body_len"`
	FrameHex    string `json:"frame_hex"`
	Bytes       []byte `json:"-"` // the whole frame
}

// Header is the header as another implementation decoded it.
type Header struct {
	Code      int32             `json:"code"`
	Language  string            `json:"language"`
	Version   int32             `json:"version"`
	Opaque    int32             `json:"opaque"`
	Flag      int32             `json:"flag"`
	Remark    string            `json:"remark"`
	ExtFields map[string]string `json:"extFields"`
}

func (f *Frame) String() string { return fmt.Sprintf("%s:%d", f.File, f.N) }

// Load reads the files of dir, the testdata folder of package remoting, whose names without extension match pattern, as in
// path.Match. It fails when there are none.
func Load(dir, pattern string) ([]*Frame, error) {
	names, err := filepath.Glob(filepath.Join(dir, pattern+".jsonl.gz"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no vectors %s in %s", pattern, dir)
	}
	var all []*Frame
	for _, name := range names {
		fs, err := load(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, fs...)
	}
	return all, nil
}

func load(name string) ([]*Frame, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []*Frame
	sc := bufio.NewScanner(z)
	sc.Buffer(make([]byte, 1<<20), 1<<20)
	for sc.Scan() {
		fr := &Frame{File: strings.TrimSuffix(filepath.Base(name), ".jsonl.gz")}
		if err := json.Unmarshal(sc.Bytes(), fr); err != nil {
			return nil, err
		}
		if fr.Bytes, err = hex.DecodeString(fr.FrameHex); err != nil {
			return nil, err
		}
		fr.FrameHex = ""
		out = append(out, fr)
	}
	return out, sc.Err()
}
