package main

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// serveClickHouseCmd runs the clickhouse-local inside libchdb until it is killed. The library installs signal handlers
// and threads of its own and cannot be unloaded, hence always in a process of its own.
type serveClickHouseCmd struct {
	Args []string `arg:"" passthrough:"" help:"The file libchdb.so, then the arguments of clickhouse-local."`
}

func (c *serveClickHouseCmd) Run() error {
	runtime.LockOSThread() // ClickHouse takes the calling thread for its main thread
	library, err := purego.Dlopen(c.Args[0], purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("load %s: %w", c.Args[0], err)
	}
	var query func(argc int32, argv unsafe.Pointer) *localResult
	purego.RegisterLibFunc(&query, library, "query_stable_v2")
	argv := []*byte{cString("clickhouse")}
	for _, arg := range c.Args[1:] {
		argv = append(argv, cString(arg))
	}
	argc := int32(len(argv))
	argv = append(argv, nil)
	result := query(argc, unsafe.Pointer(&argv[0]))
	runtime.KeepAlive(argv)
	if result != nil && result.failure != nil {
		return errors.New(goString(result.failure))
	}
	return errors.New("ClickHouse ended by itself")
}

// localResult is struct local_result_v2 of the library's chdb.h, of which only the last field matters: before it stand
// buf, len, vec, elapsed, rows_read and bytes_read, each of 8 bytes.
type localResult struct {
	_       [6]uint64
	failure *byte
}

func cString(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
