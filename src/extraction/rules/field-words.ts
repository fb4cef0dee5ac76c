/**
 * The words of a field's key or label: lower case, split at capitals, underscores and punctuation, in one spelling
 * (`randomised` becomes `randomized`).
 */
export function fieldWords(name: string): string[] {
  return name
    .normalize('NFKC')
    .replace(/(\p{Ll}|\d)(\p{Lu})/gu, '$1 $2')
    .replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, '$1 $2')
    .toLowerCase()
    .replace(/randomis/g, 'randomiz')
    .split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word !== '');
}
