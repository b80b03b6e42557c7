package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chprojector/projector/chschema"
)

// FinalSettings make FINAL merge all versions of a record before anything is
// filtered, whatever the reader's profile says. The comparison trusts nothing:
// unlike the views it does not even rely on the rule that versions of a record
// share a partition.
const FinalSettings = "do_not_merge_across_partitions_select_final=0," +
	"enable_automatic_decision_for_merging_across_partitions_for_final=0,optimize_move_to_prewhere_if_final=0," +
	"use_skip_indexes_if_final_exact_mode=1,apply_deleted_mask=1"

// rawSettings read every physical row.
const rawSettings = "final=0,apply_deleted_mask=1"

// clickhouse is the expression of a field's canonical text, a String, or NULL
// where the column is.
func (f *field) clickhouse() string {
	x, k := chschema.QuoteName(f.Column), f.kind.Kind
	switch f.Class {
	case Integer, Enum:
		return "toString(" + x + ")"
	case Decimal:
		return f.clickhouseDecimal(x)
	case Instant:
		var m string
		switch k {
		case chschema.KindDateTime:
			m = fmt.Sprintf("toInt64(toUnixTimestamp(%s))*1000000", x)
		case chschema.KindDateTime64:
			m = fmt.Sprintf("toUnixTimestamp64Micro(toDateTime64(%s,6,'UTC'))", x)
		default: // Date, Date32: days
			m = fmt.Sprintf("toInt64(toInt32(%s))*86400000000", x)
		}
		if unit := f.grain(); unit > 1 && k == chschema.KindDateTime64 {
			m = fmt.Sprintf("%s-positiveModulo(%[1]s,%d)", m, unit)
		}
		return "toString(" + m + ")"
	case Bool:
		return fmt.Sprintf("if(isNull(%s),NULL,if(%[1]s!=0,'1','0'))", x)
	case String:
		if f.trimsZeros() {
			return fmt.Sprintf("trim(TRAILING '\\0' FROM toString(%s))", x)
		}
	}
	return "toString(" + x + ")"
}

// clickhouseDecimal is the unscaled integer: the bits of a Decimal are that,
// and reading them is several times faster than dividing.
func (f *field) clickhouseDecimal(x string) string {
	bits := map[int]string{4: "Int32", 8: "Int64", 16: "Int128", 32: "Int256"}
	scale := 0
	if f.kind.Kind == chschema.KindDecimal {
		x, scale = fmt.Sprintf("reinterpret(%s,'%s')", x, bits[f.kind.Size()]), f.kind.Scale
		if f.nullable {
			x = fmt.Sprintf("if(isNull(%s),NULL,%s)", chschema.QuoteName(f.Column), strings.Replace(x, chschema.QuoteName(f.Column), "assumeNotNull("+chschema.QuoteName(f.Column)+")", 1))
		}
	}
	if more := f.Scale - scale; more > 0 {
		x = fmt.Sprintf("toInt256(%s)*toInt256('1%s')", x, strings.Repeat("0", more))
	}
	return "toString(" + x + ")"
}

func clickhouseCanon(t string) string {
	return fmt.Sprintf("ifNull(concat('V',toString(length(%s)),':',%[1]s,';'),'N;')", t)
}

// TargetRows is the statement that lists the table's newest rows of a campaign,
// deleted ones included: identity, version, deleted (0 or 1) and, at the level
// fields, the canonical fields. campaign is the column's value as text.
func (c *Contract) TargetRows(table, campaign string, s Scan) string {
	list := "i,v,d"
	if s.Level >= Fields {
		list += ",f"
	}
	return fmt.Sprintf("SELECT %s FROM %s%s SETTINGS %s", list, c.targetStates(table, campaign, s), targetFilter(s), FinalSettings)
}

// TargetDigests is the statement that sums up what TargetRows lists: for each
// bucket its number, the live and the deleted rows, the sum of versions, and the
// four sums of the digests of versions and of the live rows' fields.
func (c *Contract) TargetDigests(table, campaign string, s Scan) string {
	list := []string{
		fmt.Sprintf("toUInt32(CRC32(i)%%%d) AS b", s.Buckets), "countIf(d=0)", "countIf(d=1)", "sum(v)",
	}
	half := func(at int) string { return fmt.Sprintf("reinterpretAsUInt64(reverse(substring(h,%d,8)))", at) }
	inner := "i,v,d"
	if s.Level >= Versions {
		list = append(list, "sum("+strings.Replace(half(1), "h,", "vh,", 1)+")", "sum("+strings.Replace(half(9), "h,", "vh,", 1)+")")
		inner += fmt.Sprintf(",MD5(concat('%s',i,'V',toString(length(toString(v))),':',toString(v),';V1:',toString(d),';')) AS vh", prefix)
	}
	if s.Level >= Fields {
		list = append(list, "sumIf("+half(1)+",d=0)", "sumIf("+half(9)+",d=0)")
		inner += fmt.Sprintf(",MD5(concat('%s',f)) AS h", prefix)
	}
	return fmt.Sprintf("SELECT %s FROM (SELECT %s FROM %s%s) GROUP BY b ORDER BY b SETTINGS %s",
		strings.Join(list, ","), inner, c.targetStates(table, campaign, s), targetFilter(s), FinalSettings)
}

// targetFilter filters what FINAL has merged.
func targetFilter(s Scan) string {
	var list []string
	if len(s.Only) > 0 {
		list = append(list, fmt.Sprintf("CRC32(i)%%%d IN (%s)", s.Buckets, numbers(s.Only)))
	}
	if s.LiveOnly {
		list = append(list, "d=0")
	}
	if len(list) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(list, " AND ")
}

// targetStates is the derived table of a campaign's newest rows.
func (c *Contract) targetStates(table, campaign string, s Scan) string {
	list := []string{
		c.targetID() + " AS i", fmt.Sprintf("toUInt64(%s) AS v", chschema.QuoteName(c.spec.Version)), c.targetDeleted() + " AS d",
	}
	if s.Level >= Fields {
		all := make([]string, len(c.fields))
		for i := range c.fields {
			all[i] = clickhouseCanon(c.fields[i].clickhouse())
		}
		list = append(list, fmt.Sprintf("concat('',%s) AS f", strings.Join(all, ",")))
	}
	return fmt.Sprintf("(SELECT %s FROM %s FINAL WHERE %s)", strings.Join(list, ","), table, c.inCampaign(campaign))
}

func (c *Contract) targetID() string {
	id := make([]string, len(c.identity))
	for j, i := range c.identity {
		id[j] = clickhouseCanon(c.fields[i].clickhouse())
	}
	return fmt.Sprintf("concat('',%s)", strings.Join(id, ","))
}

func (c *Contract) targetDeleted() string {
	if c.spec.Deleted == "" {
		return "toUInt8(0)"
	}
	return fmt.Sprintf("toUInt8(%s!=0)", chschema.QuoteName(c.spec.Deleted))
}

// inCampaign compares with the value in the column's own type: a text that is no
// such value is an error of the server, not an empty campaign.
func (c *Contract) inCampaign(campaign string) string {
	t, ok := c.campaignType()
	if !ok {
		return "1"
	}
	return fmt.Sprintf("%s=CAST(%s AS %s)", chschema.QuoteName(c.spec.Campaign), chschema.QuoteString(campaign), t)
}

// Campaigns is the statement that lists the campaigns in the table, as text.
func (c *Contract) Campaigns(table string) string {
	return fmt.Sprintf("SELECT DISTINCT toString(%s) AS campaign FROM %s SETTINGS %s", chschema.QuoteName(c.spec.Campaign), table, rawSettings)
}

// OrderKeys is the statement that lists which of the given records have several
// order keys, in whatever campaign: identity and number of keys. It is "" where
// the order key is the identity, so that nobody can have two.
func (c *Contract) OrderKeys(table string, ids []string) string {
	var further []string
	for _, name := range c.spec.OrderBy {
		if !slices.Contains(c.spec.Identity, name) {
			further = append(further, chschema.QuoteName(name))
		}
	}
	if len(further) == 0 || len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf("SELECT i,n FROM (SELECT %s AS i,uniqExact(tuple(%s)) AS n FROM %s WHERE i IN (%s) GROUP BY i) WHERE n>1 SETTINGS %s",
		c.targetID(), strings.Join(further, ","), table, chschema.QuoteStrings(ids), rawSettings)
}

// Conflicts is the statement that lists versions with several contents among
// all physical rows of a campaign: identity, version, rows, campaign. It groups
// by the identity, so that a record under two order keys shows too.
func (c *Contract) Conflicts(table, campaign string, limit int) string {
	return c.Contradictions(table, c.inCampaign(campaign), limit)
}

// Contradictions is [Contract.Conflicts] for the rows where a condition holds.
func (c *Contract) Contradictions(table, where string, limit int) string {
	content := make([]string, len(c.fields))
	for i := range c.fields {
		f := &c.fields[i]
		if content[i] = chschema.QuoteName(f.Column); f.Class == Instant || f.Class == Bool { // of which several values are equal
			content[i] = f.clickhouse()
		}
	}
	return contradictions(table, c.targetID(), c.spec.Version, c.spec.Campaign, c.spec.Deleted, content, where, limit)
}

// Contradictions is [Contract.Contradictions] for a table without a contract:
// contents are all columns.
func Contradictions(t chschema.Table, where string, limit int) string {
	var content []string
	for _, c := range t.Columns {
		content = append(content, chschema.QuoteName(c.Name))
	}
	id := make([]string, len(t.Identity))
	for i, name := range t.Identity {
		id[i] = clickhouseCanon("toString(" + chschema.QuoteName(name) + ")")
	}
	return contradictions(t.Qualified(t.Physical()), fmt.Sprintf("concat('',%s)", strings.Join(id, ",")), t.Version, t.Campaign, t.Deleted, content, where, limit)
}

// contradictions compares all rows of a record and version. Of a deletion
// nothing counts but that it is one: what else it carries nobody reads, and the
// stream and a backfill fill it differently.
//
// Most groups have one row. Their contents are compared by the extremes of their
// digests, which holds two numbers a group in memory and no set.
func contradictions(table, id, version, campaign, deleted string, content []string, where string, limit int) string {
	digest := fmt.Sprintf("sipHash128(tuple(%s))", strings.Join(content, ","))
	if deleted != "" {
		digest = fmt.Sprintf("if(%s!=0,toFixedString('',16),%s)", chschema.QuoteName(deleted), digest)
	}
	group := "''"
	if campaign != "" {
		group = "toString(any(" + chschema.QuoteName(campaign) + "))"
	}
	return fmt.Sprintf("SELECT i,v,n,g FROM (SELECT %s AS i,toUInt64(%s) AS v,count() AS n,%s AS g FROM "+
		"(SELECT *,%s AS h FROM %s WHERE %s) GROUP BY i,v HAVING min(h)!=max(h) ORDER BY i,v LIMIT %d) SETTINGS %s",
		id, chschema.QuoteName(version), group, digest, table, where, limit, rawSettings)
}

// InParts is the condition that a row is in one of the parts, or, with all, that
// its record and version are in one of them.
func InParts(table string, identity []string, version string, parts []string, all bool) string {
	in := fmt.Sprintf("_part IN (%s)", chschema.QuoteStrings(parts))
	if !all {
		return in
	}
	var key []string
	for _, name := range append(slices.Clone(identity), version) {
		key = append(key, chschema.QuoteName(name))
	}
	return fmt.Sprintf("(%s) IN (SELECT %[1]s FROM %s WHERE %s)", strings.Join(key, ","), table, in)
}
