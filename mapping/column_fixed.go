package mapping

import "bytes"

// fixed is the storage of a column whose values all have the same width.
type fixed struct {
	data  []byte
	width int
}

func (f *fixed) len() int                      { return len(f.data) / f.width }
func (f *fixed) size() int                     { return len(f.data) }
func (f *fixed) truncate(n int)                { f.data = f.data[:n*f.width] }
func (f *fixed) at(i int) []byte               { return f.data[i*f.width : (i+1)*f.width] }
func (f *fixed) equal(i, j int) bool           { return bytes.Equal(f.at(i), f.at(j)) }
func (f *fixed) appendState(dst []byte) []byte { return dst }

// words returns the values of a column that are one word each, else nil.
func (f *fixed) words() []byte {
	if f.width != 8 {
		return nil
	}
	return f.data
}

func (f *fixed) appendZero() {
	for range f.width {
		f.data = append(f.data, 0)
	}
}

func (f *fixed) appendNative(dst []byte, from, to int) []byte {
	return append(dst, f.data[from*f.width:to*f.width]...)
}

func (f *fixed) appendKey(dst []byte, i int) []byte { return append(dst, f.at(i)...) }
