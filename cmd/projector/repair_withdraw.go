package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/chprojector/projector/internal/audit"
)

type repairWithdraw struct {
	Operation string `arg:"" help:"The repair, as plan and list name it." placeholder:"OPERATION"`
	Reason    string `help:"Why it is given up, for the record." placeholder:"TEXT" required:""`
	Actor     string `help:"Who withdraws it, for the record (default USER@HOST, or PROJECTOR_ACTOR)." placeholder:"NAME" envs:"PROJECTOR_ACTOR"`
	output
}

func (repairWithdraw) Help() string {
	return `Gives up a repair that nobody has applied: one that is planned or approved, that failed, or
whose process died. Nobody can apply it any more, and projector status no longer counts it.
The plan stays in the record, with who withdrew it and why. No row is touched: what a failed
repair had written or removed stays, and is for projector reconcile to compare.

A repair that was applied cannot be withdrawn, nor one that a process works on. The exception
is one that nobody has verified before the mapping, the table or the queries changed, by a
rebuild perhaps, or before the projection was renamed or removed: nobody can any more, and
what it did is for projector reconcile to compare.

Examples:

    projector repair withdraw 20261130T134512-4f2a9c --reason "the rows are a test's, ticket 4712"
    projector repair withdraw 20261130T134512-4f2a9c --reason "planned anew" -o json`
}

func (c repairWithdraw) Run(ctx context.Context, p *program) error {
	if strings.TrimSpace(c.Reason) == "" {
		return usageError{errors.New("--reason must not be empty"), "projector repair withdraw"}
	}
	r, err := openRepair(ctx, p, c.Operation)
	if err != nil {
		return err
	}
	defer r.close()
	op := r.op
	switch op.State {
	case audit.Withdrawn:
		return fmt.Errorf("repair %s is withdrawn already, by %s: %s", op.ID, op.By, op.Reason)
	case audit.Applied, audit.Refuted:
		if r.outlived() { // no process can verify it any more
			break
		}
		fallthrough
	case audit.Verified:
		return fmt.Errorf("repair %s is %s: what it did is done and cannot be withdrawn; `projector repair show %[1]s` says what was there before", op.ID, op.State)
	case audit.Planned, audit.Approved, audit.Running, audit.Waiting, audit.Failed:
	}
	op, err = r.log.Change(ctx, op.ID, requester{Actor: c.Actor}.actor(p.environ), audit.Withdrawn, func(o *audit.Operation) { o.Reason = c.Reason })
	if err != nil {
		return err
	}
	if op.State != audit.Withdrawn { // of two changes at once the record keeps the first
		return fmt.Errorf("repair %s was not withdrawn: %s has made it %s meanwhile", op.ID, op.By, op.State)
	}
	return newRepairResult(op, r.scope, r.records).print(p.stdout, c.json())
}

// outlived reports whether the configuration means something else by a repair's
// projection than when it was planned, or has it no more.
func (r *openedRepair) outlived() bool {
	pr, err := projection(r.cfg, r.op.Projection)
	return err != nil || r.cfg.SourceDigest(pr) != r.op.Digest
}
