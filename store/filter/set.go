package filter

// literalSet is the members of an IN list by what they are compared as.
type literalSet struct {
	few     []string // the texts when there is nothing else and they are few
	texts   textSet
	numbers []Value
	bools   [2]bool
	null    bool
	list    []Value
}

// fewTexts is up to how many texts are compared one by one.
const fewTexts = 4

func newLiteralSet(list []Value) *literalSet {
	s := &literalSet{list: list}
	var texts []string
	for _, v := range list {
		switch v.kind {
		case KindText:
			texts = append(texts, string(v.text))
		case KindInt, KindFloat:
			s.numbers = append(s.numbers, v)
		case KindBool:
			s.bools[v.bits] = true
		default:
			s.null = true
		}
	}
	if len(texts) == len(list) && len(texts) <= fewTexts {
		s.few = texts
	}
	s.texts = newTextSet(texts)
	return s
}

// has compares a text with the members; only Notify's lists have other members than texts.
func (s *literalSet) has(b []byte) Truth {
	if s.texts.has(b) {
		return True
	}
	result := False
	if len(s.numbers) > 0 {
		n, ok := number(b)
		if !ok {
			result = Unknown
		} else {
			for _, m := range s.numbers {
				if compareNumbers(n, m) == 0 {
					return True
				}
			}
		}
	}
	if s.bools != [2]bool{} {
		switch v, ok := boolean(b); {
		case !ok:
			result = Unknown
		case v && s.bools[1], !v && s.bools[0]:
			return True
		}
	}
	if s.null {
		return Unknown
	}
	return result
}

// textSet is a set of texts. A lookup of one that is not in it mostly ends at its hash, which a map does not do.
type textSet struct {
	hashes []uint32 // 0 is free; a power of two, at most half of them taken
	texts  []string
}

func newTextSet(texts []string) textSet {
	size := 8
	for size < 2*len(texts) {
		size *= 2
	}
	s := textSet{make([]uint32, size), make([]string, size)}
	for _, t := range texts {
		h := hashOf(bytesOf(t)) | 1
		i := int(h>>1) & (size - 1)
		for s.hashes[i] != 0 {
			i = (i + 1) & (size - 1)
		}
		s.hashes[i], s.texts[i] = h, t
	}
	return s
}

func (s *textSet) has(b []byte) bool {
	h := hashOf(b) | 1
	mask := len(s.hashes) - 1
	for i := int(h>>1) & mask; ; i = (i + 1) & mask {
		switch s.hashes[i] {
		case 0:
			return false
		case h:
			if s.texts[i] == string(b) {
				return true
			}
		}
	}
}
