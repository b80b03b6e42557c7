package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// confirm asks whoever started the program whether to go on with what changes something. Anything but a yes is an
// error, the end of standard input too: a script has to say --yes.
func (p *program) confirm(question string) error {
	fmt.Fprintf(p.stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(p.stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(p.stderr) // nobody has ended the line
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed; answer y, or give --yes")
}
