"""PDFs, made with the library that reads them."""

from io import BytesIO


def pdf(text: str, *, password: str = "", pages: int = 1) -> bytes:
    """The bytes of a PDF with the text on its first page; the others are empty."""
    from pypdf import PdfWriter
    from pypdf.generic import DictionaryObject, NameObject, StreamObject

    writer = PdfWriter()
    page, *_ = [writer.add_blank_page(300, 300) for _ in range(pages)]
    content = StreamObject()
    content.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    page[NameObject("/Contents")] = content
    writer.add_metadata({"/Title": "Reels"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    file = BytesIO()
    writer.write(file)
    return file.getvalue()
