export const FIELD_TYPES = ['text', 'number', 'integer', 'boolean', 'date', 'enum', 'list'] as const;
export type FieldType = (typeof FIELD_TYPES)[number];

/** One value to extract. Keys name the columns of the table that a task ends as. */
export type TemplateField = {
  key: string;
  label: string;
  type: FieldType;
  /** What a reader should look for; also the words by which passages are found. */
  description?: string | undefined;
  unit?: string | undefined;
  /** The allowed values of an `enum` field. */
  enum?: string[] | undefined;
  required?: boolean | undefined;
  /** A regular expression (RE2 syntax); its first group, or else the whole match, is the value. */
  pattern?: string | undefined;
};

/** An immutable, versioned list of fields. */
export type Template = {
  templateId: string;
  name: string;
  version: number;
  description: string | null;
  fields: TemplateField[];
  createdAt: Date;
};
